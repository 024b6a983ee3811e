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
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "runlog/temporary_folder.h"

namespace isoloss::runlog {
namespace {

using isoloss::testing::Bytes;
using isoloss::testing::EditWithHdf5;
using isoloss::testing::Sealed;
using isoloss::testing::TemporaryFolder;
using isoloss::testing::Unsealed;
using isoloss::testing::WriteBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The message of the error of kind `kind` that reading throws. Nothing may
/// appear on stderr.
std::string ErrorOfReading(const std::filesystem::path& path, ErrorKind kind) {
  ::testing::internal::CaptureStderr();
  std::string message;
  try {
    ReadRunLog(path);
    ADD_FAILURE() << path << " was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    message = error.what();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
  return message;
}

TEST(ReadRunLog, ReadsBackEveryFieldThatWasWritten) {
  const TemporaryFolder folder;

  WriteRunLog(SampleLog(), folder.path() / "run.h5");
  const RunLog log = ReadRunLog(folder.path() / "run.h5");

  EXPECT_EQ(DumpLines(log), DumpLines(SampleLog()));
}

/// Makes a run log what version 2 would have written.
void MakeVersion2(const h5::Handle& file) {
  ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
  h5::WriteAttribute(file, "schema_version", int64_t{2});
  ASSERT_GE(H5Adelete(file.get(), "numerics_digest"), 0);
  for (const char* name :
       {"parameters", "tensors", "steps/nonfinite_gradients",
        "moe/router_entropy", "moe/routing_digest", "moe/routing_flips"}) {
    ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0) << name;
  }
}

/// Makes it what version 1 would have written.
void MakeVersion1(const h5::Handle& file) {
  MakeVersion2(file);
  ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
  h5::WriteAttribute(file, "schema_version", int64_t{1});
  for (const char* attribute :
       {"transport", "processes", "ranks", "expert_data_parallel",
        "ranks_per_node", "exchange", "routing"}) {
    ASSERT_GE(H5Adelete(file.get(), attribute), 0) << attribute;
  }
  for (const char* group : {"moe", "exchange", "exchange_pairs"}) {
    ASSERT_GE(H5Ldelete(file.get(), group, H5P_DEFAULT), 0) << group;
  }
}

/// SampleLog() without what version 3 brought.
RunLog SampleOfVersion2() {
  RunLog log = SampleLog();
  log.provenance.numerics_digest = "";
  log.steps.nonfinite_gradients.clear();
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

TEST(ReadRunLog, IgnoresADatasetThatItsVersionDoesNotKnow) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, [](const h5::Handle& file) {
    MakeVersion2(file);
    h5::CreateDataset(file, "steps/nonfinite_gradients",
                      h5::TypeOf<std::string>(), std::vector<uint64_t>{1});
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

  EditWithHdf5(path, [](const h5::Handle& file) {
    h5::WriteAttribute(file, "note", int64_t{1});
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
    const h5::Session session;
    const h5::Handle file =
        h5::OpenImage(isoloss::testing::AsBytes(Unsealed(bytes)));
    const h5::Handle dataset = h5::OpenDataset(file, "moe/tokens_per_expert");
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

/// One way to break a file, with what the message must say.
struct Damage {
  const char* name;
  std::function<void(const h5::Handle& file)> apply;
  std::vector<std::string> message;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

void Unlink(const h5::Handle& file, const char* name) {
  ASSERT_GE(H5Ldelete(file.get(), name, H5P_DEFAULT), 0);
}

/// Replaces a dataset by one of another type or extent, with the same unit.
template <typename T>
void Replace(const h5::Handle& file, const char* name, const char* unit,
             std::vector<uint64_t> extent) {
  Unlink(file, name);
  const h5::Handle dataset =
      h5::CreateDataset(file, name, h5::TypeOf<T>(), extent);
  h5::WriteAttribute(dataset, "unit", std::string(unit));
}

template <typename T>
void ReplaceAttribute(const h5::Handle& object, const char* name,
                      const T& value) {
  ASSERT_GE(H5Adelete(object.get(), name), 0);
  h5::WriteAttribute(object, name, value);
}

class ReadDamagedRunLogTest : public ::testing::TestWithParam<Damage> {};

TEST_P(ReadDamagedRunLogTest, NamesFileItemFoundAndExpected) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, GetParam().apply);
  WriteBytes(path, Sealed(Bytes(path)));

  const std::string message = ErrorOfReading(path, ErrorKind::kFormat);

  EXPECT_THAT(message, HasSubstr(path.string()));
  for (const std::string& part : GetParam().message) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Damages, ReadDamagedRunLogTest,
                         ::
                             testing::
                                 Values(
                                     Damage{"OtherVersion",
                                            [](const h5::Handle& file) {
                                              ReplaceAttribute(file,
                                                               "schema_version",
                                                               int64_t{4});
                                            },
                                            {"schema_version is 4",
                                             "reads 1 to 3"}},
                                     Damage{"VersionBeforeTheFirst",
                                            [](const h5::Handle& file) {
                                              ReplaceAttribute(file,
                                                               "schema_version",
                                                               int64_t{0});
                                            },
                                            {"schema_version is 0",
                                             "reads 1 to 3"}},
                                     Damage{"NoAttributeOfItsVersion",
                                            [](const h5::Handle& file) {
                                              ASSERT_GE(H5Adelete(file.get(),
                                                                  "transport"),
                                                        0);
                                            },
                                            {"attribute transport is missing"}},
                                     Damage{"NoGroupOfItsVersion",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "moe");
                                            },
                                            {"group /moe is missing"}},
                                     Damage{"NoVersion",
                                            [](const h5::Handle& file) {
                                              ASSERT_GE(
                                                  H5Adelete(file.get(),
                                                            "schema_version"),
                                                  0);
                                            },
                                            {"attribute schema_version is "
                                             "missing"}},
                                     Damage{"AttributeOfOtherType",
                                            [](const h5::Handle& file) {
                                              ReplaceAttribute(file, "seed",
                                                               1.0);
                                            },
                                            {"the type of attribute seed is "
                                             "64-bit float",
                                             "must be signed 64-bit integer"}},
                                     Damage{"NoGroup",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "eval");
                                            },
                                            {"group /eval is missing"}},
                                     Damage{"GroupIsADataset",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "steps");
                                              h5::CreateDataset(
                                                  file, "steps",
                                                  h5::TypeOf<double>(),
                                                  std::vector<uint64_t>{5});
                                            },
                                            {"steps"}},
                                     Damage{"NoIndexColumn",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "steps/step");
                                            },
                                            {"/steps/step is missing"}},
                                     Damage{"NoEventText",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "events/text");
                                            },
                                            {"/events/text is missing"}},
                                     Damage{"ColumnOfOtherType",
                                            [](const h5::Handle& file) {
                                              Replace<int64_t>(
                                                  file, "steps/loss_nats",
                                                  "nat", {5});
                                            },
                                            {"the type of /steps/loss_nats is "
                                             "signed 64-bit integer",
                                             "must be 64-bit float"}},
                                     Damage{"ColumnOfOtherByteOrder",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "steps/lr");
                                              const h5::Handle type(
                                                  H5Tcopy(H5T_IEEE_F64BE),
                                                  &H5Tclose);
                                              h5::CreateDataset(
                                                  file, "steps/lr", type,
                                                  std::vector<uint64_t>{5});
                                            },
                                            {"the type of /steps/lr is "
                                             "big-endian 64-bit float",
                                             "must be 64-bit float"}},
                                     Damage{"ColumnTooShort",
                                            [](const h5::Handle& file) {
                                              Replace<double>(file, "steps/lr",
                                                              "1", {4});
                                            },
                                            {"the extent of /steps/lr is [4]",
                                             "[5] as that of /steps/step"}},
                                     Damage{
                                         "ColumnOfTwoAxes",
                                         [](const h5::Handle& file) {
                                           Replace<double>(file, "steps/lr",
                                                           "1", {5, 2});
                                         },
                                         {"the extent of /steps/lr is [5, 2]",
                                          "[rows]"}},
                                     Damage{"TableTooShort",
                                            [](const h5::Handle& file) {
                                              Replace<double>(
                                                  file,
                                                  "eval/per_sequence_loss_nats",
                                                  "nat", {1, 3});
                                            },
                                            {"the extent of "
                                             "/eval/per_sequence_loss_nats is "
                                             "[1, 3]",
                                             "[2, at least 1]"}},
                                     Damage{"ArrayOfOtherType",
                                            [](const h5::Handle& file) {
                                              Replace<int64_t>(
                                                  file, "moe/expert_ids", "1",
                                                  {3, 2, 3, 2});
                                            },
                                            {"the type of /moe/expert_ids is "
                                             "signed 64-bit integer",
                                             "must be signed 32-bit integer"}},
                                     Damage{"ArrayOfFewerAxes",
                                            [](const h5::Handle& file) {
                                              Replace<int32_t>(file,
                                                               "moe/expert_ids",
                                                               "1", {3, 2, 6});
                                            },
                                            {"the extent of /moe/expert_ids is "
                                             "[3, 2, 6]",
                                             "[3, 2, at least 1, at least 1]"}},
                                     Damage{"ArrayOfOtherRows",
                                            [](const h5::Handle& file) {
                                              Replace<int64_t>(
                                                  file, "exchange/bytes_sent",
                                                  "byte", {3, 4});
                                            },
                                            {"the extent of "
                                             "/exchange/bytes_sent is [3, 4]",
                                             "[2, at least 1]"}},
                                     Damage{"ArraysThatDisagreeOnAnAxis",
                                            [](const h5::Handle& file) {
                                              Replace<double>(file,
                                                              "moe/expert_bias",
                                                              "1", {3, 2, 41});
                                            },
                                            {"the extent of /moe/expert_bias "
                                             "is [3, 2, 41]",
                                             "[3, 2, 40]"}},
                                     Damage{"ArrayWithAnAxisOfNothing",
                                            [](const h5::Handle& file) {
                                              Unlink(file,
                                                     "moe/tokens_per_expert");
                                              Unlink(file, "moe/expert_bias");
                                              Unlink(file, "moe/padding_rows");
                                              Unlink(file, "moe/expert_ids");
                                              Unlink(file,
                                                     "moe/dropped_tokens");
                                              const hsize_t extent[] = {3, 0};
                                              const h5::Handle space(
                                                  H5Screate_simple(2, extent,
                                                                   nullptr),
                                                  &H5Sclose);
                                              const h5::Handle dataset(
                                                  H5Dcreate2(
                                                      file.get(),
                                                      "moe/dropped_tokens",
                                                      H5T_STD_I64LE,
                                                      space.get(), H5P_DEFAULT,
                                                      H5P_DEFAULT, H5P_DEFAULT),
                                                  &H5Dclose);
                                              h5::WriteAttribute(
                                                  dataset, "unit",
                                                  std::string("token"));
                                            },
                                            {"the extent of "
                                             "/moe/dropped_tokens is [3, 0]",
                                             "[3, at least 1]"}},
                                     Damage{"ArrayOfAbsurdExtent",
                                            [](const h5::Handle& file) {
                                              Replace<int32_t>(
                                                  file, "moe/expert_ids", "1",
                                                  {3, 2, 1 << 20, 1 << 8});
                                            },
                                            {"/moe/expert_ids is 1610612736",
                                             "at most"}},
                                     Damage{
                                         "PairsOfOtherRanks",
                                         [](const h5::Handle& file) {
                                           Replace<int64_t>(
                                               file,
                                               "exchange_pairs/bytes_by_pair",
                                               "byte", {4, 5});
                                         },
                                         {"the extent of "
                                          "/exchange_pairs/bytes_by_pair is "
                                          "[4, 5]",
                                          "[4, 4]"}},
                                     Damage{"FewerRanksThanTheirBytes",
                                            [](const h5::Handle& file) {
                                              Replace<int64_t>(
                                                  file, "exchange_pairs/rank",
                                                  "rank", {3});
                                            },
                                            {"the extent of "
                                             "/exchange_pairs/rank is [3]",
                                             "[4]"}},
                                     Damage{
                                         "RanksOutOfOrder",
                                         [](const h5::Handle& file) {
                                           Replace<int64_t>(
                                               file, "exchange_pairs/rank",
                                               "rank", {4});
                                         },
                                         {"/exchange_pairs/rank in row 1 is 0",
                                          "must be 1"}},
                                     Damage{
                                         "AbsurdExtent",
                                         [](const h5::Handle& file) {
                                           Replace<int64_t>(
                                               file, "steps/step", "step",
                                               {uint64_t{1} << 60});
                                         },
                                         {"/steps/step is 1152921504606846976",
                                          "at most"}},
                                     Damage{"LabelsOfOtherLength",
                                            [](const h5::Handle& file) {
                                              Replace<std::string>(
                                                  file, "tensors/names", "",
                                                  {3});
                                            },
                                            {"the extent of /tensors/digest is "
                                             "[2, 2]",
                                             "[2, 3]"}},
                                     Damage{
                                         "LabelsOfTwoAxes",
                                         [](const h5::Handle& file) {
                                           Replace<std::string>(
                                               file, "parameters/names", "",
                                               {3, 1});
                                         },
                                         {"the extent of /parameters/names is "
                                          "[3, 1]",
                                          "[at least 1]"}},
                                     Damage{"NoLabels",
                                            [](const h5::Handle& file) {
                                              Unlink(file, "tensors/names");
                                            },
                                            {"/tensors/names is missing"}},
                                     Damage{"OtherUnit",
                                            [](const h5::Handle& file) {
                                              Replace<double>(file,
                                                              "steps/loss_nats",
                                                              "bit", {5});
                                            },
                                            {"/steps/loss_nats", "`bit`",
                                             "`nat`"}}),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace isoloss::runlog
