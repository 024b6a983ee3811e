#include "isoloss/model/parameters.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::model {
namespace {

/// Makes a parameter of zeros; a tensor of experts holds only the shard's
/// experts.
Parameter MakeParameter(const ParameterSpec& spec,
                        const expert_parallel::ExpertShard& experts) {
  Parameter parameter{spec, {}, 0};
  if (spec.of_experts) {
    parameter.shape[0] = experts.count;
    parameter.first_element = experts.first * spec.rows() * spec.cols();
  }
  parameter.values =
      Matrix<float>(parameter.groups() * spec.rows(), spec.cols());
  return parameter;
}

}  // namespace

ParameterSet::ParameterSet(const ModelConfig& config)
    : ParameterSet(config, {0, config.num_experts}) {}

ParameterSet::ParameterSet(const ModelConfig& config,
                           expert_parallel::ExpertShard experts) {
  for (const ParameterSpec& spec : ParametersOf(config)) {
    parameters_.push_back(MakeParameter(spec, experts));
  }
}

size_t ParameterSet::IndexOf(std::string_view name) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].name == name) return i;
  }
  std::vector<std::string> known;
  for (const Parameter& parameter : parameters_)
    known.push_back(parameter.name);
  ThrowError(ErrorKind::kConfig,
             "ParameterSet: `{}` was asked for, but none of this model's {} "
             "parameters has that name.{}",
             name, known.size(), DidYouMean(name, known));
}

size_t ParameterSet::value_count() const {
  size_t count = 0;
  for (const Parameter& parameter : parameters_)
    count += parameter.values.size();
  return count;
}

uint64_t ParameterSet::Digest() const {
  isoloss::Digest digest;
  for (const Parameter& parameter : parameters_) {
    digest.Update(parameter.name);
    for (const uint64_t extent : parameter.shape) {
      digest.Update(&extent, sizeof(extent));
    }
    digest.Update(parameter.values.data(),
                  parameter.values.size() * sizeof(float));
  }
  return digest.Value();
}

void ParameterSet::SetZero() {
  for (Parameter& parameter : parameters_) parameter.values.SetZero();
}

}  // namespace isoloss::model
