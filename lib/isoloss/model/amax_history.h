// The largest magnitudes that delayed scaling looks back to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// What of a linear layer is quantised, whichever product reads it.
enum class SiteTensor { kActivation, kWeight, kGradient };

/// Of each tensor that some product scales by its history: one number a step,
/// the largest finite magnitude in the whole batch, of each expert for itself.
/// Kept are those of the last steps, as many as the longest history asks for.
class AmaxHistory {
 public:
  AmaxHistory(const Graph& graph, const precision::ResolvedRecipe& recipe);

  bool empty() const { return entries_.empty(); }
  /// What a call adds to the running step; a tensor without a history is left
  /// alone. `group`: in the whole model.
  void Note(std::string_view site, SiteTensor tensor, size_t group, float amax);
  /// Whether Note keeps anything of it.
  bool Notes(std::string_view site, SiteTensor tensor) const {
    return Find(site, tensor) != nullptr;
  }
  /// The largest of up to `length` steps before; none before the first step or
  /// of no steps.
  std::optional<float> Of(std::string_view site, SiteTensor tensor,
                          size_t group, int length) const;

  /// Forgets what was noted of activations and gradients: a pass begins.
  void BeginPass();
  /// The running step becomes the newest one. Collective.
  void EndStep(const expert_parallel::Mesh& mesh);

  /// For checkpoints: step s at row (s - 1) % rows, an entry each column, and
  /// how many steps there were.
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
