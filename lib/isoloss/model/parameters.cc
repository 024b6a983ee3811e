#include "isoloss/model/parameters.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::model {
namespace {

/// Makes a parameter of zeros; a tensor of experts holds only the shard's
/// experts.
Parameter MakeParameter(const ParameterSpec& spec,
                        const expert_parallel::ExpertShard& experts,
                        Memory& memory) {
  Parameter parameter{spec, Matrix<float>(memory), 0};
  if (spec.of_experts) {
    parameter.shape[0] = experts.count;
    parameter.first_element = experts.first * spec.rows() * spec.cols();
  }
  parameter.values.Resize(parameter.groups() * spec.rows(), spec.cols());
  return parameter;
}

}  // namespace

ParameterSet::ParameterSet(const ModelConfig& config, Memory& memory)
    : ParameterSet(config, {0, config.num_experts}, memory) {}

ParameterSet::ParameterSet(const ModelConfig& config,
                           expert_parallel::ExpertShard experts, Memory& memory)
    : memory_(&memory) {
  for (const ParameterSpec& spec : ParametersOf(config)) {
    parameters_.push_back(MakeParameter(spec, experts, memory));
  }
}

void ParameterSet::CopyFrom(const ParameterSet& other) {
  ISOLOSS_ASSERT(other.parameters_.size() == parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].values.CopyFrom(other.parameters_[i].values);
  }
}

ParameterSet ParameterSet::HostCopy() const {
  ParameterSet copy(kHostMemory);
  for (const Parameter& parameter : parameters_) {
    const ParameterSpec& spec = parameter;
    copy.parameters_.push_back({spec, {}, parameter.first_element});
    copy.parameters_.back().values.CopyFrom(parameter.values);
  }
  return copy;
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
    const HostRows<float> values(parameter.values.view(), memory());
    digest.Update(values.view().data(),
                  parameter.values.size() * sizeof(float));
  }
  return digest.Value();
}

void ParameterSet::SetZero() {
  for (Parameter& parameter : parameters_) parameter.values.SetZero();
}

void EditOnHost(ParameterSet& set,
                const std::function<void(ParameterSet&)>& edit) {
  if (set.memory().is_host()) return edit(set);
  ParameterSet copy = set.HostCopy();
  edit(copy);
  set.CopyFrom(copy);
}

}  // namespace isoloss::model
