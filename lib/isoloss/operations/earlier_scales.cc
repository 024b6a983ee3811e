// Lists mistakes of scales that follow another tensor: one of an earlier step,
// or the other operand.
#include <algorithm>
#include <optional>
#include <vector>

#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/scale_changes.h"

namespace isoloss::operations {
namespace {

using formats::Quantization;
using oracle::ScalarTensor;

/// Makes delayed scaling: the scales are those of an earlier tensor.
template <Earlier kEarlier>
bool StaleScale(Side& side) {
  if (!side.quantization || side.change != nullptr) return false;
  Side before = side;
  if (!TakeEarlier(kEarlier, before)) return false;
  const std::optional<ScalarTensor> tensor = Quantized(before);
  if (!tensor) return false;
  return SetChange(
      side, [scales = tensor->scales, of_tensor = tensor->tensor_scale](
                ScalarTensor& changed, const Quantization& quantization) {
        return TakeScales(scales, of_tensor, quantization, changed);
      });
}

bool PartnerScale(Side& side) {
  if (side.partner == nullptr || side.change != nullptr) return false;
  const std::optional<ScalarTensor> tensor = Quantized(*side.partner);
  return tensor && SetChange(side, [scales = tensor->scales,
                                    of_tensor = tensor->tensor_scale](
                                       ScalarTensor& changed,
                                       const Quantization& quantization) {
           return TakeScales(scales, of_tensor, quantization, changed);
         });
}

/// Lets the scale of the whole tensor follow its maximum of the step before.
bool StaleTensorScale(Side& side) {
  if (!side.quantization || !side.quantization->scales_tensor()) return false;
  Side before = side;
  if (side.change != nullptr || !TakeEarlier(&Side::previous, before)) {
    return false;
  }
  const std::optional<ScalarTensor> tensor = Quantized(before);
  if (!tensor) return false;
  return SetChange(side, [amax = LargestOf(LargestOfCells(*tensor))](
                             ScalarTensor& changed,
                             const Quantization& quantization) {
    return FollowLargest(LargestOfCells(changed), amax, quantization, changed);
  });
}

bool ScaleOfAllRanks(Side& side) {
  if (!side.amax_of_ranks || side.change != nullptr || side.fixed != nullptr) {
    return false;
  }
  side.shared_amax = side.amax_of_ranks;
  return true;
}

bool CurrentScale(Side& side) {
  if (!side.quantization || !side.quantization->reads_history()) return false;
  side.quantization->scaling = formats::Scaling::kCurrent;
  side.quantization->history = 0;
  return true;
}

bool HistoryWithoutLatest(Side& side) {
  return OtherHistory(side, [&] {
    Side before = side;
    before.amax_history.pop_back();
    return before.LargestAmax();
  });
}

bool HistoryWithCurrent(Side& side) {
  if (side.change != nullptr || side.fixed != nullptr) return false;
  return OtherHistory(side, [&] {
    const std::optional<ScalarTensor> tensor = Quantized(side);
    return std::max(side.LargestAmax(), LargestOf(LargestOfCells(*tensor)));
  });
}

constexpr SideMistake kEarlierScales[] = {
    {"scale_of_step_before",
     "scales of {} were those of the step before, elements those of this one",
     StaleScale<&Side::previous>},
    {"scale_of_call_before",
     "scales of {} were those of the call before, elements those of this one",
     StaleScale<&Side::previous_call>},
    {"scale_of_other_operand",
     "scales of {} were those of the other operand, elements its own",
     PartnerScale},
    {"scale_of_all_ranks",
     "the scale of {} followed the largest magnitude of all ranks: if ranks "
     "share it, say amax_ranks = \"all\"",
     ScaleOfAllRanks},
    {"scale_current",
     "the scale of {} followed its own maximum, not those of the steps before",
     CurrentScale},
    {"history_latest", "the scale of {} followed the maximum of the last step",
     [](Side& side) {
       return OtherHistory(side, [&] { return side.LatestAmax(); });
     }},
    {"history_maximum",
     "the scale of {} followed the largest maximum of its history",
     [](Side& side) {
       return OtherHistory(side, [&] { return side.LargestAmax(); });
     }},
    {"history_without_latest",
     "the scale of {} followed its history without the last step",
     HistoryWithoutLatest},
    {"history_with_current",
     "the scale of {} followed its history and the step itself",
     HistoryWithCurrent},
    {"history_lost", "the scale of {} was 1, as if it had no history",
     [](Side& side) { return OtherHistory(side, [] { return 0.0f; }); }},
    {"tensor_scale_of_step_before",
     "the scale of the whole tensor of {} was that of the step before",
     StaleTensorScale},
};

}  // namespace

std::span<const SideMistake> EarlierScales() { return kEarlierScales; }

}  // namespace isoloss::operations
