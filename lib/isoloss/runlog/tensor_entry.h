// Gives the rules of tensor_relations.cc access to the statistics of one tensor
// at one step.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "isoloss/runlog/operand_scales.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// The statistics of the two directions lie this far from each other.
inline constexpr size_t kColumnwise =
    kStat_underflows_num_columnwise - kStat_underflows_num;

/// Reads the statistics of one tensor at one step.
class TensorEntry {
 public:
  TensorEntry(const TensorColumns& tensors,
              const std::vector<std::array<OperandScales, 2>>& scales,
              size_t at)
      : tensors_(tensors), scales_(scales), at_(at) {}

  const OperandScales& Scales(size_t direction) const {
    return scales_[tensor()][direction == 0 ? 0 : 1];
  }

  bool Has(size_t statistic) const {
    return !tensors_.statistics[statistic].empty();
  }
  /// Returns NaN if the log does not have the column.
  double operator[](size_t statistic) const {
    return Has(statistic) ? tensors_.statistics[statistic][at_] : std::nan("");
  }
  bool Defined(size_t statistic) const {
    return !std::isnan((*this)[statistic]);
  }
  double finite() const {
    const double nonfinite = (*this)[kStat_nonfinite_num];
    return (*this)[kStat_numel] - (std::isnan(nonfinite) ? 0 : nonfinite);
  }
  /// True if statistics of quantisation are of all elements.
  bool Clean(size_t direction) const {
    return finite() == (*this)[kStat_numel] && finite() > 0 &&
           (*this)[direction + kStat_nan_blocks] == 0 &&
           // A cast may make a finite element infinite.
           !(Scales(direction).none &&
             (*this)[direction + kStat_saturated_num] > 0);
  }
  std::string Shown(size_t statistic) const {
    const double value = (*this)[statistic];
    return fmt::format("{} is {}", kTensorStatistics[statistic].name,
                       std::isnan(value) ? "NaN" : fmt::format("{}", value));
  }
  /// Returns the tensor's place among the tensors.
  size_t tensor() const { return at_ % tensors_.names.size(); }
  /// Returns the same tensor in another row.
  TensorEntry InRow(size_t row) const {
    return {tensors_, scales_, row * tensors_.names.size() + tensor()};
  }
  size_t rows() const { return tensors_.step.size(); }
  /// Returns how many blocks got each scale byte; empty if that was not
  /// recorded.
  std::span<const int32_t> Blocks(size_t direction) const {
    const auto& histogram = direction == 0 ? tensors_.e8m0_histogram
                                           : tensors_.e8m0_histogram_columnwise;
    if (histogram.empty() ||
        static_cast<size_t>(tensors_.scale_bytes) != kScaleBytes) {
      return {};
    }
    return std::span(histogram).subspan(at_ * kScaleBytes, kScaleBytes);
  }

 private:
  const TensorColumns& tensors_;
  const std::vector<std::array<OperandScales, 2>>& scales_;
  size_t at_;
};

inline constexpr double kBlockSize = 32;

inline double Count(std::span<const int32_t> blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), 0.0);
}

/// Calls find(entry) for each tensor and step until it returns a text.
template <typename Find>
std::string ForEachEntry(const RunLog& log, const Find& find) {
  const TensorColumns& tensors = log.tensors;
  const size_t count = tensors.names.size();
  // Without numel nobody knows which tensors were logged.
  if (tensors.statistics[kStat_numel].empty()) return "";
  const std::vector<RecipePhase> phases = PhasesOf(log.provenance.graph);
  std::vector<std::vector<std::array<OperandScales, 2>>> scales;
  for (const RecipePhase& phase : phases) {
    scales.push_back(OperandScalesOf(log, phase.recipe));
  }
  for (size_t at = 0; at < tensors.step.size() * count; ++at) {
    const size_t phase = PhaseAt(phases, tensors.step[at / count]);
    const std::string text = find(TensorEntry(tensors, scales[phase], at));
    if (text.empty()) continue;
    return fmt::format("/tensors: {} for {} at step {}", text,
                       tensors.names[at % count], tensors.step[at / count]);
  }
  return "";
}

}  // namespace isoloss::runlog
