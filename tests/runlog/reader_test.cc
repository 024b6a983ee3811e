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
#include "isoloss/runlog/h5_handle.h"
#include "isoloss/runlog/writer.h"
#include "runlog/sample_log.h"
#include "runlog/temporary_folder.h"

namespace isoloss::runlog {
namespace {

using isoloss::testing::TemporaryFolder;
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

std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST(ReadRunLog, ReadsBackEveryFieldThatWasWritten) {
  const TemporaryFolder folder;

  WriteRunLog(SampleLog(), folder.path() / "run.h5");
  const RunLog log = ReadRunLog(folder.path() / "run.h5");

  EXPECT_EQ(DumpLines(log), DumpLines(SampleLog()));
}

TEST(ReadRunLog, GivesWhatVersion1LacksItsDefault) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  RunLog expected = SampleLog();
  WriteRunLog(expected, path);
  {
    const h5::Session session;
    const h5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                          &H5Fclose);
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
  expected.moe = {};
  expected.exchange = {};
  expected.provenance.transport = "";
  expected.provenance.processes = 1;
  expected.provenance.ranks = 1;
  expected.provenance.expert_data_parallel = 1;
  expected.provenance.ranks_per_node = 1;
  expected.provenance.exchange = "";
  expected.provenance.routing = "";

  const RunLog log = ReadRunLog(path);

  EXPECT_EQ(DumpLines(log), DumpLines(expected));
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
    const h5::Handle file = h5::OpenFile(path);
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
  WriteBytes(path, bytes);

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
  WriteBytes(path, bytes);

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
  {
    const h5::Session session;
    const h5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                          &H5Fclose);
    GetParam().apply(file);
  }

  const std::string message = ErrorOfReading(path, ErrorKind::kFormat);

  EXPECT_THAT(message, HasSubstr(path.string()));
  for (const std::string& part : GetParam().message) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Damages, ReadDamagedRunLogTest,
    ::testing::Values(
        Damage{"OtherVersion",
               [](const h5::Handle& file) {
                 ReplaceAttribute(file, "schema_version", int64_t{3});
               },
               {"schema_version is 3", "reads 1 to 2"}},
        Damage{"VersionBeforeTheFirst",
               [](const h5::Handle& file) {
                 ReplaceAttribute(file, "schema_version", int64_t{0});
               },
               {"schema_version is 0", "reads 1 to 2"}},
        Damage{"NoAttributeOfItsVersion",
               [](const h5::Handle& file) {
                 ASSERT_GE(H5Adelete(file.get(), "transport"), 0);
               },
               {"attribute transport is missing"}},
        Damage{"NoGroupOfItsVersion",
               [](const h5::Handle& file) { Unlink(file, "moe"); },
               {"group /moe is missing"}},
        Damage{"NoVersion",
               [](const h5::Handle& file) {
                 ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
               },
               {"attribute schema_version is missing"}},
        Damage{
            "AttributeOfOtherType",
            [](const h5::Handle& file) { ReplaceAttribute(file, "seed", 1.0); },
            {"the type of attribute seed is 64-bit float",
             "must be signed 64-bit integer"}},
        Damage{"NoGroup",
               [](const h5::Handle& file) { Unlink(file, "eval"); },
               {"group /eval is missing"}},
        Damage{"GroupIsADataset",
               [](const h5::Handle& file) {
                 Unlink(file, "steps");
                 h5::CreateDataset(file, "steps", h5::TypeOf<double>(),
                                   std::vector<uint64_t>{5});
               },
               {"steps"}},
        Damage{"NoIndexColumn",
               [](const h5::Handle& file) { Unlink(file, "steps/step"); },
               {"/steps/step is missing"}},
        Damage{"NoEventText",
               [](const h5::Handle& file) { Unlink(file, "events/text"); },
               {"/events/text is missing"}},
        Damage{"ColumnOfOtherType",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "steps/loss_nats", "nat", {5});
               },
               {"the type of /steps/loss_nats is signed 64-bit integer",
                "must be 64-bit float"}},
        Damage{"ColumnOfOtherByteOrder",
               [](const h5::Handle& file) {
                 Unlink(file, "steps/lr");
                 const h5::Handle type(H5Tcopy(H5T_IEEE_F64BE), &H5Tclose);
                 h5::CreateDataset(file, "steps/lr", type,
                                   std::vector<uint64_t>{5});
               },
               {"the type of /steps/lr is big-endian 64-bit float",
                "must be 64-bit float"}},
        Damage{
            "ColumnTooShort",
            [](const h5::Handle& file) {
              Replace<double>(file, "steps/lr", "1", {4});
            },
            {"the extent of /steps/lr is [4]", "[5] as that of /steps/step"}},
        Damage{"ColumnOfTwoAxes",
               [](const h5::Handle& file) {
                 Replace<double>(file, "steps/lr", "1", {5, 2});
               },
               {"the extent of /steps/lr is [5, 2]", "[rows]"}},
        Damage{"TableTooShort",
               [](const h5::Handle& file) {
                 Replace<double>(file, "eval/per_sequence_loss_nats", "nat",
                                 {1, 3});
               },
               {"the extent of /eval/per_sequence_loss_nats is [1, 3]",
                "[2, at least 1]"}},
        Damage{"ArrayOfOtherType",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "moe/expert_ids", "1", {3, 2, 3, 2});
               },
               {"the type of /moe/expert_ids is signed 64-bit integer",
                "must be signed 32-bit integer"}},
        Damage{"ArrayOfFewerAxes",
               [](const h5::Handle& file) {
                 Replace<int32_t>(file, "moe/expert_ids", "1", {3, 2, 6});
               },
               {"the extent of /moe/expert_ids is [3, 2, 6]",
                "[3, 2, at least 1, at least 1]"}},
        Damage{"ArrayOfOtherRows",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "exchange/bytes_sent", "byte", {3, 4});
               },
               {"the extent of /exchange/bytes_sent is [3, 4]",
                "[2, at least 1]"}},
        Damage{"ArraysThatDisagreeOnAnAxis",
               [](const h5::Handle& file) {
                 Replace<double>(file, "moe/expert_bias", "1", {3, 2, 41});
               },
               {"the extent of /moe/expert_bias is [3, 2, 41]", "[3, 2, 40]"}},
        Damage{
            "ArrayWithAnAxisOfNothing",
            [](const h5::Handle& file) {
              Unlink(file, "moe/tokens_per_expert");
              Unlink(file, "moe/expert_bias");
              Unlink(file, "moe/padding_rows");
              Unlink(file, "moe/expert_ids");
              Unlink(file, "moe/dropped_tokens");
              const hsize_t extent[] = {3, 0};
              const h5::Handle space(H5Screate_simple(2, extent, nullptr),
                                     &H5Sclose);
              const h5::Handle dataset(
                  H5Dcreate2(file.get(), "moe/dropped_tokens", H5T_STD_I64LE,
                             space.get(), H5P_DEFAULT, H5P_DEFAULT,
                             H5P_DEFAULT),
                  &H5Dclose);
              h5::WriteAttribute(dataset, "unit", std::string("token"));
            },
            {"the extent of /moe/dropped_tokens is [3, 0]", "[3, at least 1]"}},
        Damage{"ArrayOfAbsurdExtent",
               [](const h5::Handle& file) {
                 Replace<int32_t>(file, "moe/expert_ids", "1",
                                  {3, 2, 1 << 20, 1 << 8});
               },
               {"/moe/expert_ids is 1610612736", "at most"}},
        Damage{"PairsOfOtherRanks",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "exchange_pairs/bytes_by_pair", "byte",
                                  {4, 5});
               },
               {"the extent of /exchange_pairs/bytes_by_pair is [4, 5]",
                "[4, 4]"}},
        Damage{"FewerRanksThanTheirBytes",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "exchange_pairs/rank", "rank", {3});
               },
               {"the extent of /exchange_pairs/rank is [3]", "[4]"}},
        Damage{"RanksOutOfOrder",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "exchange_pairs/rank", "rank", {4});
               },
               {"/exchange_pairs/rank in row 1 is 0", "must be 1"}},
        Damage{"AbsurdExtent",
               [](const h5::Handle& file) {
                 Replace<int64_t>(file, "steps/step", "step",
                                  {uint64_t{1} << 60});
               },
               {"/steps/step is 1152921504606846976", "at most"}},
        Damage{"OtherUnit",
               [](const h5::Handle& file) {
                 Replace<double>(file, "steps/loss_nats", "bit", {5});
               },
               {"/steps/loss_nats", "`bit`", "`nat`"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace isoloss::runlog
