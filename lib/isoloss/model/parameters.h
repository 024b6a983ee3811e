// Holds the named tensors of the model and their initial values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/model/graph.h"

namespace isoloss::model {

/// Holds one trained tensor, or this process's part of a tensor of experts.
/// `values` flattens all but the last dimension into rows; a vector is one row.
struct Parameter : ParameterSpec {
  Matrix<float> values;
  /// The values begin at this element of the tensor of all experts.
  size_t first_element = 0;
};

/// Holds all trained tensors of a model, in torchtitan's order. They lie in the
/// memory of the executor that computes with them.
class ParameterSet {
 public:
  /// Makes zero tensors of the model's shapes.
  explicit ParameterSet(const ModelConfig& config,
                        Memory& memory = kHostMemory);
  /// Does the same, but tensors of routed experts have only the part for
  /// `experts`.
  ParameterSet(const ModelConfig& config, expert_parallel::ExpertShard experts,
               Memory& memory = kHostMemory);

  std::span<Parameter> parameters() { return parameters_; }
  std::span<const Parameter> parameters() const { return parameters_; }

  /// Returns the place of a parameter in parameters(), which is the same in
  /// every set of one model.
  /// Errors   ConfigError that suggests the nearest name.
  size_t IndexOf(std::string_view name) const;
  Parameter& ByName(std::string_view name) {
    return parameters_[IndexOf(name)];
  }
  const Parameter& ByName(std::string_view name) const {
    return parameters_[IndexOf(name)];
  }

  Memory& memory() const { return *memory_; }
  /// Copies the values of a set of the same shapes, from any memory.
  void CopyFrom(const ParameterSet& other);
  /// Returns a copy in the host's memory.
  ParameterSet HostCopy() const;

  size_t value_count() const;
  /// Returns a digest of names, shapes and bytes, in order.
  uint64_t Digest() const;
  void SetZero();

 private:
  explicit ParameterSet(Memory& memory) : memory_(&memory) {}

  Memory* memory_;
  std::vector<Parameter> parameters_;
};

/// Lets a function of the host change a set. If the set lies in another memory,
/// the function gets a copy, which then replaces the set.
void EditOnHost(ParameterSet& set,
                const std::function<void(ParameterSet&)>& edit);

/// Fills parameters as torchtitan does (docs/model.md, section 10): each value
/// is a function of (seed, parameter name, element index).
void InitializeParameters(uint64_t seed, ParameterSet& parameters);

}  // namespace isoloss::model
