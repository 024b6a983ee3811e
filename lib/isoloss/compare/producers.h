// Which tensors of a step a tensor is computed from.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::compare {

/// The operations of the model by the names of their tensors (torchtitan's
/// modules, TransformerEngine's kinds). It knows of layers by the names that
/// it is given: whether one has experts or a query of low rank.
class Producers {
 public:
  explicit Producers(const std::vector<std::string>& names);

  /// The tensors that the operation behind `module`_`kind` reads, whether they
  /// are among the names or not; none for a weight, which is a source. Empty if
  /// it is no operation of the model:
  ///   output of a GEMM    its activation and weight
  ///   dgrad               its gradient and weight, and what it was added to
  ///   wgrad               its gradient and activation
  ///   update, parameter   own weight gradient, own update
  ///   the others          as docs/model.md computes them; of norms the
  ///                       residual stream before them and their weight
  /// The weights of experts count where results are combined.
  std::optional<std::vector<std::string>> Of(std::string_view module,
                                             std::string_view kind) const;

 private:
  bool Any(const std::string& prefix) const;
  std::vector<std::string> Expand(std::string_view inputs, int64_t layer,
                                  std::string_view feed_forward) const;
  std::string Expand(std::string_view input, int64_t layer) const;

  std::set<std::string> names_;
  int64_t last_layer_ = -1;
};

}  // namespace isoloss::compare
