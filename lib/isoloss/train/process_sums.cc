#include "isoloss/train/process_sums.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/replica_check.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::train {

void SumGradients(model::ParameterSet& gradients, expert_parallel::Mesh& mesh) {
  if (mesh.processes() == 1) return;
  std::vector<MatrixView<float>> replicated;
  std::vector<MatrixView<float>> of_experts;
  for (model::Parameter& gradient : gradients.parameters()) {
    (gradient.of_experts ? of_experts : replicated)
        .push_back(gradient.values.view());
  }
  expert_parallel::SumReplicated(mesh, replicated);
  expert_parallel::SumExperts(mesh, of_experts);
}

namespace {

/// Adds up the tree over the leaves of one parameter, with the leaves of all
/// processes if it is spread.
double WholeSum(const model::Parameter& parameter, std::vector<double> leaves,
                expert_parallel::Mesh& mesh) {
  if (parameter.of_experts && mesh.processes() > 1) {
    leaves = expert_parallel::GatherExperts(mesh, leaves);
  }
  return kernels::AlignedTreeSum(leaves.data(), leaves.size());
}

}  // namespace

std::vector<double> GradientSquares(const model::ParameterSet& gradients,
                                    expert_parallel::Mesh& mesh,
                                    Executor& executor) {
  const std::span<const model::Parameter> parameters = gradients.parameters();
  std::vector<std::vector<double>> leaves(parameters.size());
  std::vector<kernels::TensorSquares> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Matrix<float>& values = parameters[i].values;
    leaves[i].resize(kernels::SquaresLeaves(values.size()));
    tensors.push_back({{values.data(), values.size()}, leaves[i]});
  }
  kernels::SquaresOfTensors(tensors, executor);
  std::vector<double> squares;
  for (size_t i = 0; i < parameters.size(); ++i) {
    squares.push_back(WholeSum(parameters[i], std::move(leaves[i]), mesh));
  }
  return squares;
}

std::vector<double> UpdateRatios(const model::ParameterSet& parameters,
                                 std::span<const optim::UpdateSquares> squares,
                                 expert_parallel::Mesh& mesh) {
  std::vector<double> ratios;
  for (size_t i = 0; i < squares.size(); ++i) {
    const model::Parameter& parameter = parameters.parameters()[i];
    const double update = WholeSum(parameter, squares[i].update, mesh);
    const double before = WholeSum(parameter, squares[i].parameter, mesh);
    ratios.push_back(update == 0 ? 0.0 : std::sqrt(update / before));
  }
  return ratios;
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
      const HostRows<float> rows(mine.values.view(), parameters.memory());
      expert_parallel::GatherExperts(mesh, rows.view(), values.view());
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
    const HostRows<float> values(parameter.values.view(), parameters.memory());
    (parameter.of_experts ? of_experts : replicated)
        .Update(values.view().data(), parameter.values.size() * sizeof(float));
  }
  replicated.Update(expert_bias.data(),
                    expert_bias.rows() * expert_bias.cols() * sizeof(float));
  expert_parallel::CheckReplicas(mesh, replicated.Value(),
                                 "replicated weights and expert biases");
  expert_parallel::CheckExpertReplicas(mesh, of_experts.Value());
}

}  // namespace isoloss::train
