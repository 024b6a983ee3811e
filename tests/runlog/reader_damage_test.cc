// Files that HDF5 reads, with a right trailer, but that are no run logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/hdf5/handle.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::reader_damage_test {
namespace {

using isoloss::test_support::Bytes;
using isoloss::test_support::EditWithHdf5;
using isoloss::test_support::ErrorOfReading;
using isoloss::test_support::Sealed;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::Unlink;
using isoloss::test_support::WriteBytes;
using ::testing::HasSubstr;

/// One way to break a file, with what the message must say.
struct Damage {
  const char* name;
  std::function<void(const hdf5::Handle& file)> apply;
  std::vector<std::string> message;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

/// Replaces a dataset by one of another type or extent, with the same unit.
template <typename T>
void Replace(const hdf5::Handle& file, const char* name, const char* unit,
             std::vector<uint64_t> extent) {
  Unlink(file, name);
  const hdf5::Handle dataset =
      hdf5::CreateDataset(file, name, hdf5::TypeOf<T>(), extent);
  hdf5::WriteAttribute(dataset, "unit", std::string(unit));
}

template <typename T>
void ReplaceAttribute(const hdf5::Handle& object, const char* name,
                      const T& value) {
  ASSERT_GE(H5Adelete(object.get(), name), 0);
  hdf5::WriteAttribute(object, name, value);
}

std::vector<Damage> Damages() {
  return {
      Damage{"OtherVersion",
             [](const hdf5::Handle& file) {
               ReplaceAttribute(file, "schema_version", int64_t{8});
             },
             {"schema_version is 8", "reads 1 to 7"}},
      Damage{"VersionBeforeTheFirst",
             [](const hdf5::Handle& file) {
               ReplaceAttribute(file, "schema_version", int64_t{0});
             },
             {"schema_version is 0", "reads 1 to 7"}},
      Damage{"NoAttributeOfItsVersion",
             [](const hdf5::Handle& file) {
               ASSERT_GE(H5Adelete(file.get(), "transport"), 0);
             },
             {"attribute transport is missing"}},
      Damage{"NoGroupOfItsVersion",
             [](const hdf5::Handle& file) { Unlink(file, "moe"); },
             {"group /moe is missing"}},
      Damage{"NoVersion",
             [](const hdf5::Handle& file) {
               ASSERT_GE(H5Adelete(file.get(), "schema_version"), 0);
             },
             {"attribute schema_version is "
              "missing"}},
      Damage{
          "AttributeOfOtherType",
          [](const hdf5::Handle& file) { ReplaceAttribute(file, "seed", 1.0); },
          {"the type of attribute seed is "
           "64-bit float",
           "must be signed 64-bit integer"}},
      Damage{"NoGroup",
             [](const hdf5::Handle& file) { Unlink(file, "eval"); },
             {"group /eval is missing"}},
      Damage{"GroupIsADataset",
             [](const hdf5::Handle& file) {
               Unlink(file, "steps");
               hdf5::CreateDataset(file, "steps", hdf5::TypeOf<double>(),
                                   std::vector<uint64_t>{5});
             },
             {"steps"}},
      Damage{"NoIndexColumn",
             [](const hdf5::Handle& file) { Unlink(file, "steps/step"); },
             {"/steps/step is missing"}},
      Damage{"NoEventText",
             [](const hdf5::Handle& file) { Unlink(file, "events/text"); },
             {"/events/text is missing"}},
      Damage{"ColumnOfOtherType",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "steps/loss_nats", "nat", {5});
             },
             {"the type of /steps/loss_nats is "
              "signed 64-bit integer",
              "must be 64-bit float"}},
      Damage{"ColumnOfOtherByteOrder",
             [](const hdf5::Handle& file) {
               Unlink(file, "steps/lr");
               const hdf5::Handle type(H5Tcopy(H5T_IEEE_F64BE), &H5Tclose);
               hdf5::CreateDataset(file, "steps/lr", type,
                                   std::vector<uint64_t>{5});
             },
             {"the type of /steps/lr is "
              "big-endian 64-bit float",
              "must be 64-bit float"}},
      Damage{"ColumnTooShort",
             [](const hdf5::Handle& file) {
               Replace<double>(file, "steps/lr", "1", {4});
             },
             {"the extent of /steps/lr is [4]", "[5] as that of /steps/step"}},
      Damage{"ColumnOfTwoAxes",
             [](const hdf5::Handle& file) {
               Replace<double>(file, "steps/lr", "1", {5, 2});
             },
             {"the extent of /steps/lr is [5, 2]", "[rows]"}},
      Damage{
          "TableTooShort",
          [](const hdf5::Handle& file) {
            Replace<double>(file, "eval/per_sequence_loss_nats", "nat", {1, 3});
          },
          {"the extent of "
           "/eval/per_sequence_loss_nats is "
           "[1, 3]",
           "[2, at least 1]"}},
      Damage{"ArrayOfOtherType",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "moe/expert_ids", "1", {3, 2, 3, 2});
             },
             {"the type of /moe/expert_ids is "
              "signed 64-bit integer",
              "must be signed 32-bit integer"}},
      Damage{"ArrayOfFewerAxes",
             [](const hdf5::Handle& file) {
               Replace<int32_t>(file, "moe/expert_ids", "1", {3, 2, 6});
             },
             {"the extent of /moe/expert_ids is "
              "[3, 2, 6]",
              "[3, 2, at least 1, at least 1]"}},
      Damage{"ArrayOfOtherRows",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "exchange/bytes_sent", "byte", {3, 4});
             },
             {"the extent of "
              "/exchange/bytes_sent is [3, 4]",
              "[2, at least 1]"}},
      Damage{"ArraysThatDisagreeOnAnAxis",
             [](const hdf5::Handle& file) {
               Replace<double>(file, "moe/expert_bias", "1", {3, 2, 41});
             },
             {"the extent of /moe/expert_bias "
              "is [3, 2, 41]",
              "[3, 2, 40]"}},
      Damage{"ArrayWithAnAxisOfNothing",
             [](const hdf5::Handle& file) {
               Unlink(file, "moe/tokens_per_expert");
               Unlink(file, "moe/expert_bias");
               Unlink(file, "moe/padding_rows");
               Unlink(file, "moe/expert_ids");
               Unlink(file, "moe/dropped_tokens");
               const hsize_t extent[] = {3, 0};
               const hdf5::Handle space(H5Screate_simple(2, extent, nullptr),
                                        &H5Sclose);
               const hdf5::Handle dataset(
                   H5Dcreate2(file.get(), "moe/dropped_tokens", H5T_STD_I64LE,
                              space.get(), H5P_DEFAULT, H5P_DEFAULT,
                              H5P_DEFAULT),
                   &H5Dclose);
               hdf5::WriteAttribute(dataset, "unit", std::string("token"));
             },
             {"the extent of "
              "/moe/dropped_tokens is [3, 0]",
              "[3, at least 1]"}},
      Damage{
          "ArrayOfAbsurdExtent",
          [](const hdf5::Handle& file) {
            Replace<int32_t>(file, "moe/expert_ids", "1",
                             {3, 2, 1 << 20, 1 << 8});
          },
          {"the extent of /moe/expert_ids is [3, 2, 1048576, 256]", "at most"}},
      Damage{"PairsOfOtherRanks",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "exchange_pairs/bytes_by_pair", "byte",
                                {4, 5});
             },
             {"the extent of "
              "/exchange_pairs/bytes_by_pair is "
              "[4, 5]",
              "[4, 4]"}},
      Damage{"FewerRanksThanTheirBytes",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "exchange_pairs/rank", "rank", {3});
             },
             {"the extent of "
              "/exchange_pairs/rank is [3]",
              "[4]"}},
      Damage{"RanksOutOfOrder",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "exchange_pairs/rank", "rank", {4});
             },
             {"/exchange_pairs/rank in row 1 is 0", "must be 1"}},
      Damage{"AbsurdExtent",
             [](const hdf5::Handle& file) {
               Replace<int64_t>(file, "steps/step", "step",
                                {uint64_t{1} << 60});
             },
             {"the extent of /steps/step is [1152921504606846976]", "at most"}},
      Damage{"LabelsOfOtherLength",
             [](const hdf5::Handle& file) {
               Replace<std::string>(file, "tensors/names", "", {3});
             },
             {"the extent of /tensors/digest is "
              "[2, 2]",
              "[2, 3]"}},
      Damage{"LabelsOfTwoAxes",
             [](const hdf5::Handle& file) {
               Replace<std::string>(file, "parameters/names", "", {3, 1});
             },
             {"the extent of /parameters/names is "
              "[3, 1]",
              "[at least 1]"}},
      Damage{"NoLabels",
             [](const hdf5::Handle& file) { Unlink(file, "tensors/names"); },
             {"/tensors/names is missing"}},
      Damage{"OtherUnit",
             [](const hdf5::Handle& file) {
               Replace<double>(file, "steps/loss_nats", "bit", {5});
             },
             {"/steps/loss_nats", "`bit`", "`nat`"}}};
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
                         ::testing::ValuesIn(Damages()), [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace isoloss::runlog::reader_damage_test
