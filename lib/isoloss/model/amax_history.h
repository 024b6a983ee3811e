// Keeps the largest magnitudes that delayed scaling looks back to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// Names the tensor of a linear layer that is quantised, whichever product
/// reads it.
enum class SiteTensor { kActivation, kWeight, kGradient };

/// Keeps one number a step for each tensor that some product scales by its
/// history. The number is the largest finite magnitude in the whole batch; each
/// expert has its own. The longest history decides how many steps are kept.
/// A run of several recipes keeps what any of them looks back to, so that each
/// goes on from the steps of all.
class AmaxHistory {
 public:
  AmaxHistory(const Graph& graph,
              std::span<const precision::ResolvedRecipe> recipes);

  bool empty() const { return entries_.empty(); }
  /// Sets the magnitude of a weight in the running step, or raises that of
  /// another tensor, whose rows may come in shares. Ignores a tensor without a
  /// history. `group` counts in the whole model.
  void Note(std::string_view site, SiteTensor tensor, size_t group, float amax);
  /// Returns whether Note keeps anything of this tensor.
  bool Notes(std::string_view site, SiteTensor tensor) const {
    return Find(site, tensor) != nullptr;
  }
  /// Returns the largest magnitude of up to `length` earlier steps, or nothing
  /// before the first step or if `length` is 0.
  std::optional<float> Of(std::string_view site, SiteTensor tensor,
                          size_t group, int length) const;

  /// Forgets what the running step noted of activations and gradients, because
  /// a batch begins.
  void BeginPass();
  /// Makes the running step the newest one. Collective: all processes call it.
  void EndStep(const expert_parallel::Mesh& mesh);

  /// Checkpoints save these values: step s is row (s - 1) % rows, and each
  /// entry has its columns. Restore takes the number of steps.
  MatrixView<float> values() { return values_.view(); }
  void Restore(int64_t steps) { steps_ = static_cast<size_t>(steps); }

 private:
  struct Entry {
    std::string site;
    SiteTensor tensor;
    size_t first;  ///< column of group 0
  };
  const Entry* Find(std::string_view site, SiteTensor tensor) const;

  std::vector<Entry> entries_;
  std::vector<float> current_;  // of the running step, by column
  Matrix<float> values_;        // [steps kept, columns]
  size_t steps_ = 0;
};

}  // namespace isoloss::model
