// Finds where the first NaN or infinity of a step came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {

/// Such a tensor has elements that are NaN or infinite.
struct NonFinite {
  std::string name;   ///< Tensor::Name()
  int64_t count = 0;  ///< in all processes
  int64_t elements = 0;
  /// `process` is the first that has such an element. `row` and `col` are the
  /// place of its first one among its rows, padding left out.
  size_t process = 0;
  size_t row = 0;
  size_t col = 0;

  /// Returns "layers.1.moe.routed_experts.w2_output: 3 of 8192 elements are
  /// NaN or infinite, the first in row 7, column 12"; names the process if
  /// there are several.
  std::string Describe(size_t processes) const;
};

/// Counts the values that are not finite in each tensor, which may come in
/// several parts, of shares of the batch. A step whose loss or gradient norm is
/// not finite is run again with this counter.
class NonFiniteCounter : public model::TapSink {
 public:
  explicit NonFiniteCounter(Executor& executor) : executor_(executor) {}

  void OnTensor(const model::Tensor& tensor) override;
  void OnRouting(std::string_view /*module*/,
                 MatrixView<const int32_t> /*expert_ids*/,
                 size_t /*first_token*/) override {}

  /// Returns all tensors that have such an element, in the order of
  /// computation: the first is the producer. Collective over the processes of
  /// the mesh, which saw the same tensors; each gets the result.
  std::vector<NonFinite> Finish(expert_parallel::Mesh& mesh) const;

 private:
  struct Count {
    std::string name;
    int64_t count = 0;
    int64_t elements = 0;
    std::vector<RowRun> runs = {};  ///< of all parts
    RowPlace place = {};            ///< of the first row that is not finite
    size_t col = 0;                 ///< in this row
  };
  Count& CountOf(const std::string& name);
  static int64_t RowNumber(const Count& count);

  Executor& executor_;
  std::vector<Count> counts_;
  std::unordered_map<std::string, size_t> numbers_;  // of counts, by name
};

}  // namespace isoloss::probes
