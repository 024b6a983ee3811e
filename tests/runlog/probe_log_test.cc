#include "isoloss/runlog/probe_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/tree.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/writer.h"
#include "log_file.h"
#include "support/earlier_probe.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::probe_log_test {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// No two values alike; NaN and infinity among them.
ProbeLog Sample() {
  ProbeLog log;
  log.provenance.arm = "mxfp8";
  log.provenance.config_digest = "c1";
  log.provenance.complete = true;
  log.cases = {"plain", "hot_row"};
  log.tensors = {"layers.0.wq_activation", "layers.0.wq_output",
                 "layers.0.wq_dgrad"};
  for (int64_t i = 0; i < 6; ++i) {
    log.oracle.Append({.probe_case = i / 3,
                       .step = 7 + i,
                       .tensor = i % 3,
                       .elements = 100 + i,
                       .equal = 90 + i,
                       .flips = 10 - i,
                       .other = i,
                       .expected_flips = 0.5 * static_cast<double>(i),
                       .noise_ratio = i == 0 ? kNan : 1.25,
                       .worst_ratio = i == 5 ? kInf : 0.75,
                       .worst_row = 20 + i,
                       .worst_column = 30 + i,
                       .worst_value = 1e-3 * static_cast<double>(i),
                       .worst_expected = -1e-3 * static_cast<double>(i),
                       .flips_toward_zero = 5 - i,
                       .row_noise_ratio = i == 0 ? kNan : 0.875,
                       .noisiest_row = i - 1,
                       .noisy_elements = 10 * i,
                       .signed_error = i == 0 ? kNan : -0.0625,
                       .tensor_noise_ratio = i == 0 ? kNan : 1.125,
                       .unseen_elements = 1000 * i,
                       .draws = 200 * i});
  }
  log.plain_steps = {{1, 2},   {3.5, kNan}, {0.5, kInf},
                     {11, 12}, {13, 14},    {15, 16}};
  log.routing.Append({.probe_case = 1,
                      .step = 7,
                      .layer = 2,
                      .tokens = 256,
                      .flips = 3,
                      .other = 1,
                      .digest = -77});
  log.reference_recipe = "bf16";
  log.precision.Append({.step = 7,
                        .tensor = 2,
                        .relative_error = 0.03,
                        .gain = -0.001,
                        .worst_group_error = 0.07,
                        .saturated = 0.5,
                        .underflows = kNan});
  log.routing_flips = {{7, 8}, {0, 1}, {0.25, 0.125}};
  return log;
}

template <typename T>
void ExpectSame(const std::vector<T>& a, const std::vector<T>& b,
                const std::string& name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  for (size_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_same_v<T, double>) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    }
    EXPECT_EQ(a[i], b[i]) << name << " row " << i;
  }
}

/// That every column of the logs' groups is the same.
void ExpectSameColumns(const ProbeLog& a, const ProbeLog& b) {
  for (const Group& group : SchemaOf<ProbeLog>()) {
    if (group.IsFile()) continue;
    for (const Column& column : group.columns) {
      View(a).WithValues(column, [&]<typename T>(const std::vector<T>& values) {
        ExpectSame(values, View(b).Values<T>(column), group.PathOf(column));
      });
    }
  }
}

class ProbeLogTest : public ::testing::Test {
 protected:
  const test_support::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "probe.h5";

  std::string ErrorOfReadingProbe(ErrorKind kind) const {
    try {
      ReadProbeLog(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "was read";
    return "";
  }
};

TEST_F(ProbeLogTest, ReadsEveryColumnThatWasWritten) {
  const ProbeLog log = Sample();

  WriteProbeLog(log, path_);
  const ProbeLog read = ReadProbeLog(path_);

  EXPECT_EQ(read.provenance.config_digest, "c1");
  EXPECT_TRUE(read.provenance.complete);
  EXPECT_EQ(read.cases, log.cases);
  EXPECT_EQ(read.tensors, log.tensors);
  EXPECT_EQ(read.reference_recipe, "bf16");
  ExpectSameColumns(read, log);
}

TEST_F(ProbeLogTest, ReadsALogOfAProgramThatHadFewerColumns) {
  ProbeLog log = Sample();
  test_support::MakeFirstLayout(log);

  WriteProbeLog(log, path_);
  const ProbeLog read = ReadProbeLog(path_);

  EXPECT_EQ(read.schema_version, 1);
  ExpectSameColumns(read, log);
}

TEST_F(ProbeLogTest, KeepsAnEmptyLog) {
  WriteProbeLog({}, path_);

  EXPECT_TRUE(ReadProbeLog(path_).oracle.step.empty());
}

TEST_F(ProbeLogTest, DescribesEachColumnInTheFile) {
  WriteProbeLog(Sample(), path_);

  const std::string bytes = test_support::Bytes(path_);
  const hdf5::Tree tree(test_support::AsBytes(test_support::Unsealed(bytes)),
                        "probe.h5");
  const hdf5::Object* dataset =
      tree.root().Member("precision")->Member("saturated");
  const auto text = [dataset](const char* name) {
    return hdf5::One<std::string>(*dataset->Attribute(name));
  };
  EXPECT_EQ(text("unit"), "%");
  EXPECT_THAT(text("description"), HasSubstr("largest code"));
}

TEST_F(ProbeLogTest, NoByteCanChangeUnseen) {
  WriteProbeLog(Sample(), path_);
  const std::string whole = test_support::Bytes(path_);

  for (size_t at = 0; at < whole.size(); at += 509) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    test_support::WriteBytes(path_, damaged);
    EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat), HasSubstr("probe log"))
        << at;
  }
  for (const size_t length :
       {size_t{0}, size_t{100}, whole.size() - 24, whole.size() - 1}) {
    test_support::WriteBytes(path_, whole.substr(0, length));
    ErrorOfReadingProbe(ErrorKind::kFormat);
  }
}

/// Changes a value of the file with HDF5 and seals it again.
void Edit(const std::filesystem::path& path,
          const std::function<void(const hdf5::Handle& file)>& edit) {
  test_support::WriteBytes(path,
                           test_support::Unsealed(test_support::Bytes(path)));
  test_support::EditWithHdf5(path, edit);
  test_support::WriteBytes(path,
                           test_support::Sealed(test_support::Bytes(path)));
}

TEST_F(ProbeLogTest, RejectsPlacesOutsideTheirList) {
  ProbeLog log = Sample();
  log.oracle.tensor[4] = 3;

  EXPECT_THROW(WriteProbeLog(log, path_), Error);
  WriteProbeLog(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    const std::vector<int64_t> cases = {0, 0, 0, 1, 1, 2};
    hdf5::WriteDataset<int64_t>(
        test_support::OpenDataset(file, "oracle/probe_case"), cases);
  });

  EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat),
              HasSubstr("/oracle/probe_case in row 5 is 2, but /cases has 2"));
}

TEST_F(ProbeLogTest, RejectsImpossibleExpectedFlips) {
  for (const double expected : {kNan, kInf, -1.0, 1e300}) {
    ProbeLog log = Sample();
    log.oracle.expected_flips[2] = expected;
    WriteProbeLog(log, path_);

    EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat),
                HasSubstr("/oracle/expected_flips in row 2 is "));
  }
}

TEST(ProbeLog, TellsWhichShareOfWrongElementsDrawsMiss) {
  ProbeLog log = Sample();
  EXPECT_EQ(log.oracle.MissedShare(0), 0.0) << "all elements were seen";
  for (const size_t i : {1, 5}) {
    const double right = 1.0 - log.oracle.MissedShare(i);
    EXPECT_NEAR(std::pow(right, log.oracle.draws[i]), kMissChance, 1e-12);
  }
  EXPECT_NEAR(log.oracle.MissedShare(5), 0.0068839, 1e-7);
  EXPECT_EQ(WorstMissedShare(log), log.oracle.MissedShare(1));
  log.tensors[1] = "log./tensors/statistics";
  EXPECT_EQ(WorstMissedShare(log), log.oracle.MissedShare(2));
}

TEST(ProbeLog, OfAnEarlierLayoutSawAllElements) {
  ProbeLog log = Sample();
  test_support::MakeFirstLayout(log);

  EXPECT_EQ(log.oracle.UnseenElements(5), 0);
  EXPECT_EQ(log.oracle.MissedShare(5), 0.0);
  EXPECT_EQ(WorstMissedShare(log), 0.0);
}

TEST_F(ProbeLogTest, RejectsANewerVersion) {
  WriteProbeLog(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    H5Adelete(file.get(), "probe_schema_version");
    hdf5::WriteAttribute(file, "probe_schema_version", kProbeSchemaVersion + 1);
  });

  EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat),
              HasSubstr("probe_schema_version is 5, but this program reads 1 "
                        "to 4"));
}

TEST_F(ProbeLogTest, RejectsColumnsThatDisagree) {
  ProbeLog log = Sample();
  log.oracle.other.pop_back();

  EXPECT_THROW(WriteProbeLog(log, path_), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
  WriteProbeLog(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    H5Ldelete(file.get(), "oracle/other", H5P_DEFAULT);
  });

  EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat),
              HasSubstr("/oracle/other is missing"));
}

TEST_F(ProbeLogTest, IsNoRunLogNorTheOtherWayRound) {
  WriteProbeLog(Sample(), path_);
  EXPECT_THAT(test_support::ErrorOfReading(path_, ErrorKind::kFormat),
              HasSubstr("this is a probe log, but a run log is needed"));

  WriteRunLog({}, path_);
  EXPECT_THAT(ErrorOfReadingProbe(ErrorKind::kFormat),
              HasSubstr("this is a run log, but a probe log is needed"));
}

}  // namespace
}  // namespace isoloss::runlog::probe_log_test
