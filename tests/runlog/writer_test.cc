#include "isoloss/runlog/writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/schema.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::writer_test {
namespace {

using isoloss::test_support::Bytes;
using isoloss::test_support::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The message of the error of kind `kind` that writing throws.
std::string ErrorOfWriting(const RunLog& log, const std::filesystem::path& path,
                           ErrorKind kind) {
  try {
    WriteRunLog(log, path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << path << " was written";
  return "";
}

constexpr char kReader[] =
    ISOLOSS_PYTHON " " ISOLOSS_SOURCE_DIR "/tests/runlog/read_with_h5py.py ";

/// Output of the program, line by line; fails the test if it does not end with
/// `status`.
std::vector<std::string> LinesOf(const std::string& command, int status = 0) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    output.push_back(static_cast<char>(c));
  }
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), status) << command;
  std::vector<std::string> lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(StepColumns, AppendAddsOneValueToEveryColumn) {
  StepColumns columns;

  columns.Append({.step = 1, .loss_nats = 5.5, .quantized_gemms = 12});
  columns.Append({.step = 2, .loss_nats = 5.25, .quantized_gemms = 13});

  EXPECT_THAT(columns.step, ElementsAre(1, 2));
  EXPECT_THAT(columns.loss_nats, ElementsAre(5.5, 5.25));
  EXPECT_THAT(columns.quantized_gemms, ElementsAre(12, 13));
  for (const Column& column : ColumnsOf<StepColumns>()) {
    EXPECT_EQ(View(columns).Count(column), 2) << column.field.name;
  }
}

TEST(WriteRunLog, IsReadableWithPlainH5py) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  const RunLog log = SampleLog();

  WriteRunLog(log, path);
  const std::vector<std::string> lines = LinesOf(kReader + path.string());

  EXPECT_THAT(lines, ::testing::ElementsAreArray(DumpLines(log)));
  // Names and units as people's scripts know them, not as the schema has them.
  EXPECT_THAT(lines, Contains("schema_version = 7"));
  EXPECT_THAT(lines, Contains("complete = true"));
  EXPECT_THAT(lines, Contains("steps/step [step] 5 = 1 2 3 4 5"));
  EXPECT_THAT(lines, Contains("eval/per_sequence_loss_nats [nat] 2x3 = "
                              "5.5 5.75 6 4.5 nan 0.10000000000000001"));
  EXPECT_THAT(lines, Contains("moe/expert_ids [1] 3x2x3x2 = "
                              "2200 2201 2202 2203 2204 2205 2206 2207 2208 "
                              "2209 2210 2211 2212 2213 2214 2215 2216 2217 "
                              "2218 2219 2220 2221 2222 2223 2224 2225 2226 "
                              "2227 2228 2229 2230 2231 2232 2233 2234 2235"));
  EXPECT_THAT(lines, Contains("exchange/max_rows_per_rank [row] 2x3 = "
                              "4200 4201 4202 4203 4204 4205"));
  EXPECT_THAT(lines, Contains("exchange_pairs/rank [rank] 4 = 0 1 2 3"));
  EXPECT_THAT(lines, Contains("events/text [] 2 = \"\" \"5 → ∞\""));
}

TEST(WriteRunLog, OmitsColumnsThatAreEmptyButKeepsEmptyGroups) {
  const TemporaryFolder folder;
  RunLog log;
  log.steps.step = {1, 2};
  log.steps.loss_nats = {5.5, 5.25};
  log.eval.sequences = 4;

  WriteRunLog(log, folder.path() / "run.h5");
  const RunLog copy = ReadRunLog(folder.path() / "run.h5");

  EXPECT_THAT(copy.steps.loss_nats, ElementsAre(5.5, 5.25));
  EXPECT_THAT(copy.steps.grad_norm, IsEmpty());
  EXPECT_THAT(copy.eval.step, IsEmpty());
  EXPECT_EQ(copy.eval.sequences, 4);
  EXPECT_THAT(copy.events, IsEmpty());
}

TEST(WriteRunLog, KeepsExtentsWithoutRowsAndOmitsArraysThatWereNotRecorded) {
  const TemporaryFolder folder;
  RunLog log;
  log.moe.layers = 2;
  log.moe.experts = 8;
  log.exchange.step = {1};
  log.exchange.ranks = 2;
  log.exchange.layers = 3;
  log.exchange.bytes_sent = {5, 6};

  WriteRunLog(log, folder.path() / "run.h5");
  const RunLog copy = ReadRunLog(folder.path() / "run.h5");

  EXPECT_EQ(copy.moe.layers, 2);
  EXPECT_EQ(copy.moe.experts, 8);
  EXPECT_THAT(copy.moe.tokens_per_expert, IsEmpty());
  EXPECT_EQ(copy.exchange.ranks, 2);
  EXPECT_THAT(copy.exchange.bytes_sent, ElementsAre(5, 6));
  EXPECT_THAT(copy.exchange.bytes_received, IsEmpty());
  EXPECT_THAT(copy.exchange.bytes_by_pair, IsEmpty());
  EXPECT_THAT(copy.exchange.rank_rows, IsEmpty());
}

TEST(WriteRunLog, CompressesRowsOfManyValues) {
  const TemporaryFolder folder;
  RunLog log;
  log.moe.step = {1, 2, 3};
  log.moe.layers = 2;
  log.moe.tokens = 4096;
  log.moe.top_k = 8;
  for (size_t i = 0; i < size_t{3} * 2 * 4096 * 8; ++i) {
    log.moe.expert_ids.push_back(static_cast<int32_t>((i * 2654435761u) >> 16) &
                                 255);
  }

  WriteRunLog(log, folder.path() / "run.h5");

  // Ids below 256 fill one byte of four.
  const size_t bytes = log.moe.expert_ids.size() * sizeof(int32_t);
  EXPECT_LT(std::filesystem::file_size(folder.path() / "run.h5"), bytes / 3);
  EXPECT_EQ(ReadRunLog(folder.path() / "run.h5").moe.expert_ids,
            log.moe.expert_ids);
}

TEST(WriteRunLog, GivesATensorByItsNameToPlainH5py) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";

  WriteRunLog(SampleLog(), path);
  const std::vector<std::string> lines =
      LinesOf(kReader + path.string() + " layers.0.wq_wgrad");

  EXPECT_THAT(lines, Contains("step 1 4"));
  EXPECT_THAT(lines, Contains("digest 0 5"));
  // The second tensor of two: the second and fourth value of SampleTensors().
  EXPECT_THAT(lines, Contains("numel 1.5 3.5"));
  EXPECT_THAT(lines, Contains("mean nan 603.5"));
  EXPECT_THAT(lines, Contains(HasSubstr("e8m0_histogram 256 257 258")));
  EXPECT_THAT(lines, ::testing::Not(Contains(HasSubstr("sum "))));
}

TEST(WriteRunLog, EndsWithATrailerThatPythonChecksToo) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  std::string bytes = Bytes(path);

  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  isoloss::test_support::WriteBytes(path, bytes);

  EXPECT_THAT(LinesOf(kReader + path.string() + " 2>&1", 1),
              Contains(HasSubstr("cut off, damaged or changed")));
}

TEST(WriteRunLog, IsReadAgainWhenH5pyChangedItAndSealedIt) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);

  LinesOf("cd " ISOLOSS_SOURCE_DIR "/tests/runlog && " ISOLOSS_PYTHON
          " -B -c 'import h5py, read_with_h5py as r\n"
          "with h5py.File(\"" +
          path.string() +
          "\", \"r+\") as log: log[\"steps/lr\"][0] = 0.5\n"
          "r.seal(\"" +
          path.string() + "\")'");

  EXPECT_EQ(ReadRunLog(path).steps.lr[0], 0.5);
}

// 15 steps of 500 tensors: 4 bytes of 7.7 million counts, of which few are not
// zero. Deflate can't shrink below 1/1032; five counts of some ten bits in each
// histogram take the rest.
TEST(WriteRunLog, CompressesHistogramsToTheirFewCounts) {
  const TemporaryFolder folder;
  const CounterRng rng(21, StreamId("histograms"));
  RunLog log;
  log.tensors.count = 500;
  log.tensors.scale_bytes = int64_t{kScaleBytes};
  for (size_t i = 0; i < 500; ++i) {
    log.tensors.names.push_back(fmt::format("layers.{}.wq_activation", i));
  }
  for (int64_t step = 1; step <= 15; ++step) log.tensors.step.push_back(step);
  std::vector<int32_t>& counts = log.tensors.e8m0_histogram;
  counts.resize(15 * 500 * kScaleBytes);
  for (size_t i = 0; i < size_t{15} * 500; ++i) {
    for (size_t bin = 0; bin < 5; ++bin) {
      counts[i * kScaleBytes + 118 + bin] =
          static_cast<int32_t>(rng.Below(5 * i + bin, 2048));
    }
  }

  WriteRunLog(log, folder.path() / "run.h5");

  EXPECT_LT(std::filesystem::file_size(folder.path() / "run.h5"), 200'000);
  EXPECT_EQ(ReadRunLog(folder.path() / "run.h5").tensors.e8m0_histogram,
            counts);
}

TEST(WriteRunLog, MakesTheSameBytesOfTheSameLog) {
  const TemporaryFolder folder;

  WriteRunLog(SampleLog(), folder.path() / "a.h5");
  WriteRunLog(SampleLog(), folder.path() / "b.h5");

  EXPECT_EQ(Bytes(folder.path() / "a.h5"), Bytes(folder.path() / "b.h5"));
  // Both were written in the same second: look for its time stamp too.
  const hdf5::Session session;
  const std::string bytes = Bytes(folder.path() / "a.h5");
  const hdf5::Handle file =
      hdf5::OpenImage(isoloss::test_support::AsBytes(bytes));
  H5O_info_t info{};
  ASSERT_GE(H5Oget_info_by_name2(file.get(), "steps/step", &info, H5O_INFO_TIME,
                                 H5P_DEFAULT),
            0);
  EXPECT_EQ(info.ctime, 0);
}

TEST(WriteRunLog, ReplacesAnExistingFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  std::ofstream(path) << "old";

  WriteRunLog(SampleLog(), path);

  EXPECT_EQ(DumpLines(ReadRunLog(path)), DumpLines(SampleLog()));
  EXPECT_THAT(folder.Entries(), ElementsAre("run.h5"));
}

TEST(WriteRunLog, RejectsColumnsOfUnequalLength) {
  const TemporaryFolder folder;
  RunLog short_column = SampleLog();
  short_column.steps.lr.pop_back();
  RunLog short_table = SampleLog();
  short_table.eval.per_sequence_loss_nats.pop_back();
  RunLog no_width = SampleLog();
  no_width.eval.sequences = 0;
  RunLog short_array = SampleLog();
  short_array.moe.expert_ids.pop_back();
  RunLog short_pairs = SampleLog();
  short_pairs.exchange.bytes_by_pair.resize(12);
  RunLog short_labels = SampleLog();
  short_labels.tensors.names.pop_back();
  RunLog no_labels = SampleLog();
  no_labels.parameters.names.clear();

  EXPECT_THAT(
      ErrorOfWriting(short_column, folder.path() / "run.h5", ErrorKind::kShape),
      AllOf(HasSubstr("/steps/lr has 4 values"),
            HasSubstr("/steps/step has 5 rows")));
  EXPECT_THAT(
      ErrorOfWriting(short_table, folder.path() / "run.h5", ErrorKind::kShape),
      HasSubstr("/eval/per_sequence_loss_nats has 5 values"));
  EXPECT_THAT(
      ErrorOfWriting(no_width, folder.path() / "run.h5", ErrorKind::kShape),
      HasSubstr("at least one column"));
  EXPECT_THAT(
      ErrorOfWriting(short_array, folder.path() / "run.h5", ErrorKind::kShape),
      AllOf(HasSubstr("/moe/expert_ids has 35 values"),
            HasSubstr("/moe/step has 3 rows, which need 36")));
  EXPECT_THAT(
      ErrorOfWriting(short_pairs, folder.path() / "run.h5", ErrorKind::kShape),
      AllOf(HasSubstr("/exchange_pairs/bytes_by_pair has 12 values"),
            HasSubstr("/exchange_pairs/rank has 4 rows, which need 16")));
  EXPECT_THAT(
      ErrorOfWriting(short_labels, folder.path() / "run.h5", ErrorKind::kShape),
      HasSubstr("/tensors/names has 1 values for 2 tensors"));
  EXPECT_THAT(
      ErrorOfWriting(no_labels, folder.path() / "run.h5", ErrorKind::kShape),
      HasSubstr("/parameters/names has 0 values for 3 parameters"));
  EXPECT_THAT(folder.Entries(), IsEmpty());
}

TEST(WriteRunLog, RejectsATextThatHdf5WouldCut) {
  const TemporaryFolder folder;
  RunLog log;
  log.provenance.experiment_text = std::string("a\0b", 3);

  EXPECT_THAT(ErrorOfWriting(log, folder.path() / "run.h5", ErrorKind::kIo),
              AllOf(HasSubstr("run.h5"), HasSubstr("NUL byte at position 1")));
  EXPECT_THAT(folder.Entries(), IsEmpty());
}

TEST(WriteRunLog, NamesTheReasonWhenTheFolderIsUnusable) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "text";
  std::filesystem::create_directory(folder.path() / "folder");
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  const RunLog log = SampleLog();

  EXPECT_THAT(
      ErrorOfWriting(log, folder.path() / "none" / "run.h5", ErrorKind::kIo),
      AllOf(HasSubstr("none/run.h5"), HasSubstr("No such file")));
  EXPECT_THAT(
      ErrorOfWriting(log, folder.path() / "file" / "run.h5", ErrorKind::kIo),
      HasSubstr("Not a directory"));
  EXPECT_THAT(ErrorOfWriting(log, folder.path() / "folder", ErrorKind::kIo),
              HasSubstr("no regular file"));
  EXPECT_THAT(ErrorOfWriting(log, folder.path() / "pipe", ErrorKind::kIo),
              HasSubstr("no regular file"));
}

TEST(WriteRunLog, NamesTheReasonWhenTheFolderIsReadOnly) {
  const TemporaryFolder folder;
  const std::filesystem::path locked = folder.path() / "locked";
  std::filesystem::create_directory(locked);
  ::chmod(folder.path().c_str(), 0755);
  ::chmod(locked.c_str(), 0555);
  // Permissions do not bind root; "nobody" is bound.
  const uid_t user = ::geteuid();
  constexpr uid_t kNobody = 65534;
  if (user == 0 && ::seteuid(kNobody) != 0) {
    GTEST_SKIP() << "root without other users";
  }

  const std::string message =
      ErrorOfWriting(SampleLog(), locked / "run.h5", ErrorKind::kIo);
  ASSERT_EQ(::seteuid(user), 0);

  EXPECT_THAT(message, HasSubstr("Permission denied"));
}

TEST(WriteRunLog, LeavesNothingAndKeepsTheOldFileWhenWritingFails) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  std::ofstream(path) << "old";
  // A limit on the size of files stands in for a full disk: write() comes back
  // short first and then fails.
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{.rlim_cur = 4096, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);

  const std::string message = ErrorOfWriting(SampleLog(), path, ErrorKind::kIo);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  ::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("can't write"),
                             HasSubstr("File too large")));
  EXPECT_EQ(Bytes(path), "old");
  EXPECT_THAT(folder.Entries(), ElementsAre("run.h5"));
}

TEST(WriteRunLog, WorksFromSeveralThreadsAtOnce) {
  const TemporaryFolder folder;
  constexpr int kThreads = 8;
  std::vector<std::vector<std::string>> read(kThreads);

  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&folder, &read, i] {
      const auto path = folder.path() / fmt::format("run{}.h5", i);
      RunLog log = SampleLog();
      log.provenance.seed = i;
      WriteRunLog(log, path);
      read[static_cast<size_t>(i)] = DumpLines(ReadRunLog(path));
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (int i = 0; i < kThreads; ++i) {
    EXPECT_THAT(read[static_cast<size_t>(i)],
                Contains(fmt::format("seed = {}", i)));
  }
}

}  // namespace
}  // namespace isoloss::runlog::writer_test
