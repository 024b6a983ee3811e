#include "isoloss/train/process_sums.h"

#include <span>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"
#include "isoloss/optim/clip.h"

namespace isoloss::train {

void SumGradients(model::ParameterSet& gradients, expert_parallel::Mesh& mesh) {
  if (mesh.processes() == 1) return;
  std::vector<MatrixView<float>> replicated;
  std::vector<MatrixView<float>> of_experts;
  for (model::Parameter& gradient : gradients.parameters()) {
    (gradient.of_experts ? of_experts : replicated)
        .push_back(gradient.values.view());
  }
  mesh.SumReplicated(replicated);
  mesh.SumExperts(of_experts);
}

double GradientNorm(const model::ParameterSet& gradients,
                    expert_parallel::Mesh& mesh, ThreadTeam& team) {
  std::vector<double> squares;
  for (const model::Parameter& gradient : gradients.parameters()) {
    const std::span<const float> values(gradient.values.data(),
                                        gradient.values.size());
    if (!gradient.of_experts || mesh.processes() == 1) {
      squares.push_back(kernels::SumOfSquares(values, team));
      continue;
    }
    std::vector<double> leaves((values.size() + kernels::kSquaresLeaf - 1) /
                               kernels::kSquaresLeaf);
    kernels::SumOfSquaresLeaves(values, leaves, team);
    leaves = mesh.GatherExperts(leaves);
    squares.push_back(kernels::AlignedTreeSum(leaves.data(), leaves.size()));
  }
  return optim::GlobalNorm(squares);
}

uint64_t WholeDigest(const model::ModelConfig& config,
                     const model::ParameterSet& parameters,
                     expert_parallel::Mesh& mesh) {
  if (mesh.processes() == 1) return parameters.Digest();
  model::ParameterSet whole(config);
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    const model::Parameter& mine = parameters.parameters()[i];
    Matrix<float>& values = whole.parameters()[i].values;
    if (mine.of_experts) {
      mesh.GatherExperts(mine.values.view(), values.view());
    } else {
      values.CopyFrom(mine.values);
    }
  }
  return whole.Digest();
}

void CheckReplicas(const model::ParameterSet& parameters,
                   MatrixView<const float> expert_bias,
                   expert_parallel::Mesh& mesh) {
  if (mesh.processes() == 1) return;
  Digest replicated;
  Digest of_experts;
  for (const model::Parameter& parameter : parameters.parameters()) {
    (parameter.of_experts ? of_experts : replicated)
        .Update(parameter.values.data(),
                parameter.values.size() * sizeof(float));
  }
  replicated.Update(expert_bias.data(),
                    expert_bias.rows() * expert_bias.cols() * sizeof(float));
  mesh.CheckReplicas(replicated.Value(),
                     "replicated weights and expert biases");
  mesh.CheckExpertReplicas(of_experts.Value());
}

}  // namespace isoloss::train
