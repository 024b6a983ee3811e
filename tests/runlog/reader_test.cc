#include "isoloss/runlog/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <functional>
#include <iterator>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::reader_test {
namespace {

using isoloss::test_support::Bytes;
using isoloss::test_support::EditWithHdf5;
using isoloss::test_support::ErrorOfReading;
using isoloss::test_support::Sealed;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::Unsealed;
using isoloss::test_support::WriteBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReadRunLog, ReadsBackEveryFieldThatWasWritten) {
  const TemporaryFolder folder;

  WriteRunLog(SampleLog(), folder.path() / "run.h5");
  const RunLog log = ReadRunLog(folder.path() / "run.h5");

  EXPECT_EQ(DumpLines(log), DumpLines(SampleLog()));
}

/// Removes what version 6 brought.
void RemoveCorpusBits(const hdf5::Handle& file) {
  for (const char* attribute : {"bigram_entropy_nats", "deflated_bits"}) {
    ASSERT_GE(H5Adelete(file.get(), attribute), 0) << attribute;
  }
}

/// Removes what version 5 brought, and later ones.
void RemoveGraph(const hdf5::Handle& file) {
  RemoveCorpusBits(file);
  for (const char* name : {"graph", "graph_inputs", "recipe"}) {
    ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0) << name;
  }
}

/// Makes a run log what version 2 would have written.
void MakeVersion2(const hdf5::Handle& file) {
  RemoveGraph(file);
  ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
  hdf5::WriteAttribute(file, "schema_version", int64_t{2});
  ASSERT_GE(H5Adelete(file.get(), "numerics_digest"), 0);
  for (const char* name : {"parameters", "tensors", "steps/nonfinite_gradients",
                           "steps/batch_digest", "moe/router_entropy",
                           "moe/routing_digest", "moe/routing_flips"}) {
    ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0) << name;
  }
}

/// Makes it what version 1 would have written.
void MakeVersion1(const hdf5::Handle& file) {
  MakeVersion2(file);
  ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
  hdf5::WriteAttribute(file, "schema_version", int64_t{1});
  for (const char* attribute :
       {"transport", "processes", "ranks", "expert_data_parallel",
        "ranks_per_node", "exchange", "routing"}) {
    ASSERT_GE(H5Adelete(file.get(), attribute), 0) << attribute;
  }
  for (const char* group : {"moe", "exchange", "exchange_pairs"}) {
    ASSERT_GE(H5Ldelete(file.get(), group, H5P_DEFAULT), 0) << group;
  }
}

/// SampleLog() without what versions 6 and 7 brought.
RunLog SampleOfVersion5() {
  RunLog log = SampleLog();
  log.provenance.bigram_entropy_nats = 0;
  log.provenance.deflated_bits = 0;
  log.provenance.graph.phases = {};
  return log;
}

/// Without what version 5 brought.
RunLog SampleOfVersion4() {
  RunLog log = SampleOfVersion5();
  log.provenance.graph = {};
  return log;
}

/// Without what version 3 brought.
RunLog SampleOfVersion2() {
  RunLog log = SampleOfVersion4();
  log.provenance.numerics_digest = "";
  log.steps.nonfinite_gradients.clear();
  log.steps.batch_digest.clear();
  log.parameters = {};
  log.tensors = {};
  log.moe.router_entropy.clear();
  log.moe.routing_digest.clear();
  log.moe.routing_flips.clear();
  return log;
}

RunLog SampleOfVersion1() {
  RunLog log = SampleOfVersion2();
  log.moe = {};
  log.exchange = {};
  log.provenance.transport = "";
  log.provenance.processes = 1;
  log.provenance.ranks = 1;
  log.provenance.expert_data_parallel = 1;
  log.provenance.ranks_per_node = 1;
  log.provenance.exchange = "";
  log.provenance.routing = "";
  return log;
}

TEST(ReadRunLog, GivesWhatVersion1LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, &MakeVersion1);

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleOfVersion1()));
}

TEST(ReadRunLog, GivesWhatVersion2LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, &MakeVersion2);

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleOfVersion2()));
}

TEST(ReadRunLog, GivesWhatVersion3LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, [](const hdf5::Handle& file) {
    ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
    hdf5::WriteAttribute(file, "schema_version", int64_t{3});
    ASSERT_GE(H5Ldelete(file.get(), "steps/batch_digest", H5P_DEFAULT), 0);
    RemoveGraph(file);
  });
  WriteBytes(path, Sealed(Bytes(path)));

  const RunLog log = ReadRunLog(path);

  RunLog expected = SampleOfVersion4();
  expected.steps.batch_digest.clear();
  EXPECT_EQ(DumpLines(log), DumpLines(expected));
}

TEST(ReadRunLog, GivesWhatVersion4LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, [](const hdf5::Handle& file) {
    ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
    hdf5::WriteAttribute(file, "schema_version", int64_t{4});
    RemoveGraph(file);
  });
  WriteBytes(path, Sealed(Bytes(path)));

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleOfVersion4()));
}

TEST(ReadRunLog, GivesWhatVersion5LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, [](const hdf5::Handle& file) {
    ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
    hdf5::WriteAttribute(file, "schema_version", int64_t{5});
    RemoveCorpusBits(file);
  });
  WriteBytes(path, Sealed(Bytes(path)));

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleOfVersion5()));
}

TEST(ReadRunLog, IgnoresADatasetThatItsVersionDoesNotKnow) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, [](const hdf5::Handle& file) {
    MakeVersion2(file);
    hdf5::CreateDataset(file, "steps/nonfinite_gradients",
                        hdf5::TypeOf<std::string>(), std::vector<uint64_t>{1});
  });

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(SampleOfVersion2()));
}

TEST(ReadRunLog, RefusesVersion3WithoutItsTrailer) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  const std::string whole = Bytes(path);
  const std::string data(Unsealed(whole));
  std::string other_length = whole;
  other_length[whole.size() - 16] ^= 1;
  std::string other_digest = whole;
  other_digest[whole.size() - 1] ^= 1;

  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {{data, "it has no trailer"},
               {whole + "x", "it has no trailer"},
               {Sealed(whole) + whole.substr(data.size()), "its trailer is of"},
               {other_length, "its trailer is of"},
               {other_digest, "the digest of its HDF5 data is"}};
  for (const auto& [bytes, part] : cases) {
    WriteBytes(path, bytes);

    EXPECT_THAT(
        ErrorOfReading(path, ErrorKind::kFormat),
        ::testing::AllOf(HasSubstr(part),
                         HasSubstr("cut off, damaged, or changed by another "
                                   "program since")));
  }
}

TEST(ReadRunLog, RefusesVersion3ThatHdf5ChangedWithoutANewTrailer) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);

  EditWithHdf5(path, [](const hdf5::Handle& file) {
    hdf5::WriteAttribute(file, "note", int64_t{1});
  });

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("it has no trailer"));
}

// HDF5 1.10 crashes or hangs on some of these if it gets to see them.
TEST(ReadRunLog, RefusesEveryRandomFlipAndCut) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  const std::string whole = Bytes(path);
  const CounterRng rng(20, StreamId("flips and cuts of a run log"));

  for (uint64_t trial = 0; trial < 2400; ++trial) {
    std::string bytes = whole;
    const auto draw = [&](uint64_t index, uint64_t bound) {
      return static_cast<size_t>(rng.Below(8 * trial + index, bound));
    };
    // A third each: flips, a cut, both.
    const uint64_t flips = trial % 3 == 1 ? 0 : 1 + trial % 4;
    for (uint64_t flip = 0; flip < flips; ++flip) {
      char& byte = bytes[draw(flip, bytes.size())];
      byte = static_cast<char>(byte ^ (1 << draw(flip, 8)));
    }
    if (trial % 3 != 0) bytes.resize(draw(7, bytes.size()));
    if (bytes == whole) continue;
    WriteBytes(path, bytes);

    EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat), HasSubstr("run.h5"))
        << "trial " << trial;
  }
}

TEST(ReadRunLog, RejectsAFlippedBitInACompressedArray) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  std::string bytes = Bytes(path);
  haddr_t place = 0;
  hsize_t length = 0;
  {
    const hdf5::Session session;
    const hdf5::Handle file =
        hdf5::OpenImage(isoloss::test_support::AsBytes(Unsealed(bytes)));
    const hdf5::Handle dataset =
        test_support::OpenDataset(file, "moe/tokens_per_expert");
    const hsize_t offset[] = {0, 0, 0};
    unsigned mask = 0;
    ASSERT_GE(H5Dget_chunk_info_by_coord(dataset.get(), offset, &mask, &place,
                                         &length),
              0);
  }
  // 3 steps of 80 counts, compressed.
  ASSERT_LT(length, 3 * 80 * sizeof(int64_t));

  bytes[place + length / 2] = static_cast<char>(bytes[place + length / 2] ^ 1);
  WriteBytes(path, Sealed(Unsealed(bytes)));

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("/moe/tokens_per_expert"));
}

TEST(ReadRunLog, NamesTheReasonWhenThereIsNoFileToRead) {
  const TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);

  EXPECT_THAT(ErrorOfReading(folder.path() / "none.h5", ErrorKind::kIo),
              HasSubstr("none.h5: can't open: No such file"));
  EXPECT_THAT(ErrorOfReading(folder.path(), ErrorKind::kIo),
              HasSubstr("is a folder or device"));
  EXPECT_THAT(ErrorOfReading(pipe, ErrorKind::kIo),
              HasSubstr("is a folder or device"));
}

TEST(ReadRunLog, RejectsWhatIsNotHdf5) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  for (const std::string& bytes :
       {std::string(), std::string("\x89HDF"), std::string(4096, 'x')}) {
    WriteBytes(path, bytes);

    EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
                HasSubstr("run.h5: the first 8 bytes are not the HDF5"));
  }
}

TEST(ReadRunLog, RejectsAFileTruncatedAnywhere) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  const std::string whole = Bytes(path);
  std::vector<size_t> lengths;
  for (size_t length = 0; length < whole.size(); length += 211) {
    lengths.push_back(length);
  }
  for (size_t missing = 1; missing <= 64; ++missing) {
    lengths.push_back(whole.size() - missing);
  }

  for (const size_t length : lengths) {
    WriteBytes(path, std::string_view(whole).substr(0, length));

    EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat), HasSubstr("run.h5"))
        << length << " of " << whole.size() << " bytes";
  }
}

TEST(ReadRunLog, RejectsAFlippedBitInAValue) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  const RunLog log = SampleLog();
  WriteRunLog(log, path);
  std::string bytes = Bytes(path);
  const auto needle =
      std::bit_cast<std::array<char, 8>>(log.steps.loss_nats[1]);
  const auto value =
      std::search(bytes.begin(), bytes.end(), needle.begin(), needle.end());
  ASSERT_NE(value, bytes.end());

  *value = static_cast<char>(*value ^ 1);
  WriteBytes(path, Sealed(Unsealed(bytes)));

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("/steps/loss_nats"));
}

}  // namespace
}  // namespace isoloss::runlog::reader_test
