#include "isoloss/runlog/ensemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isoloss/base/error.h"
#include "log_file.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::ensemble_test {
namespace {

using ::testing::HasSubstr;

StepColumns Steps(double loss, size_t count) {
  StepColumns steps;
  for (size_t i = 0; i < count; ++i) {
    steps.Append({.step = static_cast<int64_t>(i) + 1,
                  .loss_nats = loss + static_cast<double>(i),
                  .grad_norm = 2 * loss,
                  .step_seconds = 0.5});
  }
  return steps;
}

ParameterColumns Parameters(double norm) {
  return {.step = {1, 2},
          .count = 2,
          .names = {"wq", "wo"},
          .grad_norm = {norm, norm + 1, norm + 2, norm + 3},
          .update_ratio = {1, 2, 3, norm}};
}

Ensemble Sample() {
  Ensemble ensemble;
  ensemble.kind = EnsembleKind::kSeeds;
  ensemble.provenance.recipe = "mxfp8_rceil";
  ensemble.provenance.config_digest = "c1";
  ensemble.reference_provenance.recipe = "bf16";
  ensemble.tensors = {"wq_output", "wo_output"};
  for (int64_t i = 0; i < 3; ++i) {
    const double x = static_cast<double>(i);
    EnsembleMember member{.perturbation = i == 1 ? "reverse_k" : "",
                          .seed = 40 + i,
                          .steps = Steps(3 + x, static_cast<size_t>(i) + 1),
                          .reference_steps = Steps(4 + x, 2),
                          .parameters = Parameters(5 + x),
                          .reference_parameters = Parameters(6 + x)};
    member.precision.Append(
        {.step = 3, .tensor = i % 2, .relative_error = 0.1 * x});
    member.routing_flips = {{3}, {i}, {0.01 * x}};
    ensemble.members.push_back(member);
  }
  return ensemble;
}

class EnsembleTest : public ::testing::Test {
 protected:
  const test_support::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "ensemble.h5";

  std::string ErrorOfReadingEnsemble() const {
    try {
      ReadEnsemble(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "was read";
    return "";
  }
  /// That of its file.
  std::string DigestOf(const Ensemble& ensemble) const {
    WriteEnsemble(ensemble, path_);
    return ReadEnsemble(path_).digest;
  }
};

TEST_F(EnsembleTest, ReadsEveryMemberThatWasWritten) {
  const Ensemble ensemble = Sample();

  WriteEnsemble(ensemble, path_);
  const Ensemble read = ReadEnsemble(path_);

  EXPECT_EQ(read.kind, EnsembleKind::kSeeds);
  EXPECT_EQ(read.provenance.recipe, "mxfp8_rceil");
  EXPECT_EQ(read.reference_provenance.recipe, "bf16");
  EXPECT_EQ(read.tensors, ensemble.tensors);
  ASSERT_EQ(read.members.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    const EnsembleMember& a = read.members[i];
    const EnsembleMember& b = ensemble.members[i];
    EXPECT_EQ(a.perturbation, b.perturbation);
    EXPECT_EQ(a.seed, b.seed);
    EXPECT_EQ(a.steps.step, b.steps.step);
    EXPECT_EQ(a.steps.loss_nats, b.steps.loss_nats);
    EXPECT_EQ(a.reference_steps.grad_norm, b.reference_steps.grad_norm);
    EXPECT_EQ(a.parameters.names, b.parameters.names);
    EXPECT_EQ(a.parameters.grad_norm, b.parameters.grad_norm);
    EXPECT_EQ(a.reference_parameters.update_ratio,
              b.reference_parameters.update_ratio);
    EXPECT_EQ(a.precision.tensor, b.precision.tensor);
    EXPECT_EQ(a.precision.relative_error, b.precision.relative_error);
    EXPECT_EQ(a.routing_flips.flip_share, b.routing_flips.flip_share);
  }
  EXPECT_EQ(read.digest.size(), 16);
  EXPECT_EQ(DigestOf(read), read.digest);
}

TEST_F(EnsembleTest, KeepsMembersWithoutRows) {
  Ensemble ensemble;
  ensemble.members.resize(2);

  WriteEnsemble(ensemble, path_);

  EXPECT_EQ(ReadEnsemble(path_).members.size(), 2);
}

TEST_F(EnsembleTest, DigestCoversMembersButNoClock) {
  const std::string digest = DigestOf(Sample());
  Ensemble slower = Sample();
  slower.members[0].steps.step_seconds[0] = 9;
  Ensemble other = Sample();
  other.members[2].parameters.grad_norm[3] += 1e-9;
  Ensemble renamed = Sample();
  renamed.members[1].perturbation = "split_k";

  EXPECT_EQ(DigestOf(slower), digest);
  EXPECT_NE(DigestOf(other), digest);
  EXPECT_NE(DigestOf(renamed), digest);
}

TEST_F(EnsembleTest, RejectsMembersThatRecordDifferentThings) {
  Ensemble columns = Sample();
  columns.members[1].steps.grad_norm.clear();
  Ensemble names = Sample();
  names.members[2].parameters.names[0] = "wk";

  EXPECT_THROW(WriteEnsemble(columns, path_), Error);
  EXPECT_THROW(WriteEnsemble(names, path_), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(EnsembleTest, NoByteCanChangeUnseen) {
  WriteEnsemble(Sample(), path_);
  const std::string whole = test_support::Bytes(path_);

  for (size_t at = 0; at < whole.size(); at += 1009) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    test_support::WriteBytes(path_, damaged);
    ErrorOfReadingEnsemble();
  }
}

/// Changes the file with HDF5 and seals it again.
void Edit(const std::filesystem::path& path,
          const std::function<void(const hdf5::Handle& file)>& edit) {
  test_support::WriteBytes(path,
                           test_support::Unsealed(test_support::Bytes(path)));
  test_support::EditWithHdf5(path, edit);
  test_support::WriteBytes(path,
                           test_support::Sealed(test_support::Bytes(path)));
}

TEST_F(EnsembleTest, RejectsContentThatItsDigestDoesNotFit) {
  WriteEnsemble(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    const std::vector<int64_t> seeds = {40, 41, 43};
    hdf5::WriteDataset<int64_t>(test_support::OpenDataset(file, "members/seed"),
                                seeds);
  });

  EXPECT_THAT(ErrorOfReadingEnsemble(), HasSubstr("the digest is"));
}

TEST_F(EnsembleTest, RejectsRowsOfMembersThatAreNotThere) {
  WriteEnsemble(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    const std::vector<int64_t> members = {0, 1, 3};
    hdf5::WriteDataset<int64_t>(
        test_support::OpenDataset(file, "precision/member"), members);
  });

  EXPECT_THAT(ErrorOfReadingEnsemble(),
              HasSubstr("/precision/member is out of order"));
}

TEST_F(EnsembleTest, RejectsAnUnknownKind) {
  WriteEnsemble(Sample(), path_);
  Edit(path_, [](const hdf5::Handle& file) {
    H5Adelete(file.get(), "kind");
    hdf5::WriteAttribute(file, "kind", std::string("bad"));
  });

  EXPECT_THAT(ErrorOfReadingEnsemble(), HasSubstr("'bad'"));
}

}  // namespace
}  // namespace isoloss::runlog::ensemble_test
