#include "isoloss/operations/recorded_operand.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/scale_changes.h"
#include "isoloss/operations/scale_grid.h"

namespace isoloss::operations {
namespace {

using oracle::ScalarScale;
using oracle::ScalarTensor;

[[noreturn]] void Reject(const RecordedOperand& operand,
                         const std::string& found, const std::string& rule) {
  ThrowError(ErrorKind::kFormat,
             "{}: {}, but must be {} (docs/check-tensors.md). Record the step "
             "again.",
             operand.given.where, found, rule);
}

/// Sets the signs of a random transform, which one number of 16 bits holds.
std::string TakeSigns(const RecordedOperand& operand) {
  constexpr const char* kName = "wgrad_signs";
  constexpr size_t kRun = 16;
  const Integers* signs = operand.given.operation.FindIntegers(kName);
  if (signs == nullptr) return fmt::format("{} is missing", kName);
  uint64_t key = 0;
  for (size_t i = 0; i < signs->values.size(); ++i) {
    const int64_t sign = signs->values[i];
    if (signs->values.size() != kRun || (sign != 1 && sign != -1)) {
      Reject(operand,
             fmt::format("{} has {} numbers, with {} among them", kName,
                         signs->values.size(), sign),
             "16 numbers of 1 or -1");
    }
    if (sign < 0) key |= uint64_t{1} << i;
  }
  for (Side* side : operand.sides) side->state.transform_key = key;
  return "";
}

float MaximumOf(const Floats& tensor) {
  float amax = 0.0f;
  for (const float value : tensor.values) {
    if (std::isfinite(value)) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

/// Returns whether scales of whole tensors follow the maxima of all ranks.
bool HaveRanksOneScale(const RecordedOperand& operand) {
  const auto& texts = operand.given.operation.texts;
  const auto ranks = texts.find("amax_ranks");
  if (ranks == texts.end() || ranks->second == "own") return false;
  if (ranks->second == "all") return true;
  Reject(operand, fmt::format("amax_ranks is `{}`", Printable(ranks->second)),
         "`all` or `own`");
}

std::optional<std::vector<const Operation*>> OnOtherRanks(
    const RecordedOperand& operand, int64_t steps) {
  const auto& others = operand.given.on_other_ranks;
  return others == nullptr ? std::nullopt : others(steps);
}

/// Returns the largest magnitudes of the steps before, the latest last, by
/// their files; nothing if one is missing.
std::optional<std::vector<float>> HistoryOfFiles(const RecordedOperand& operand,
                                                 int length) {
  const OperationCase& given = operand.given;
  const bool has_one_history =
      operand.sides.size() == 1 || operand.sides[0]->shared_amax;
  if (given.earlier == nullptr || !has_one_history) return std::nullopt;
  std::vector<float> history;
  for (int back = 1; back <= length && back < given.step; ++back) {
    std::vector<const Operation*> calls = given.earlier(back);
    if (HaveRanksOneScale(operand)) {
      const auto others = OnOtherRanks(operand, back);
      if (!others) return std::nullopt;
      calls.insert(calls.end(), others->begin(), others->end());
    }
    float amax = 0.0f;
    for (const Operation* call : calls) {
      const Floats* tensor = call->Find(operand.tensor);
      if (tensor == nullptr) return std::nullopt;
      amax = std::max(amax, MaximumOf(*tensor));
    }
    if (calls.empty()) return std::nullopt;
    history.push_back(amax);
  }
  std::ranges::reverse(history);
  return history;
}

std::string TakeHistory(const RecordedOperand& operand) {
  const Operation& operation = operand.given.operation;
  const std::string name = fmt::format("{}_amax_history", operand.name);
  const int length = operand.sides[0]->quantization->history;
  const size_t groups =
      operand.sides[0]->shared_amax ? 1 : operand.sides.size();
  const Floats* recorded = operation.Find(name);
  const auto steps_before =
      static_cast<size_t>(std::min<int64_t>(length, operand.given.step - 1));
  std::optional<std::vector<float>> of_files;
  if (recorded == nullptr || recorded->values.empty()) {
    of_files = HistoryOfFiles(operand, length);
    if (!of_files) {
      return fmt::format(
          "neither {} nor files of the {} steps before are "
          "there",
          name, length);
    }
  } else if (recorded->values.size() % groups != 0) {
    Reject(operand,
           fmt::format("{} has {} numbers", name, recorded->values.size()),
           fmt::format("as many for each of {} tensors", groups));
  } else if (std::ranges::any_of(recorded->values,
                                 [](float amax) { return amax < 0.0f; })) {
    Reject(operand, fmt::format("{} has numbers below zero", name),
           "magnitudes");
  } else if (recorded->values.size() / groups < steps_before) {
    return fmt::format(
        "{} has {} maxima, but the recipe looks back to {} steps", name,
        recorded->values.size() / groups, steps_before);
  }
  for (size_t g = 0; g < operand.sides.size(); ++g) {
    Side& side = *operand.sides[g];
    if (of_files) {
      side.amax_history = *of_files;
    } else {
      const auto size =
          static_cast<ptrdiff_t>(recorded->values.size() / groups);
      const auto first =
          recorded->values.begin() + static_cast<ptrdiff_t>(g % groups) * size;
      side.amax_history.assign(first + std::max<ptrdiff_t>(0, size - length),
                               first + size);
    }
    side.margin = operation.Number("amax_margin", 0.0);
    const auto algorithm = operation.texts.find("amax_algorithm");
    const bool takes_latest = algorithm != operation.texts.end() &&
                              algorithm->second == "most_recent";
    if (algorithm != operation.texts.end() && !takes_latest &&
        algorithm->second != "max") {
      Reject(
          operand,
          fmt::format("amax_algorithm is `{}`", Printable(algorithm->second)),
          "`max` or `most_recent`");
    }
    side.SetHistory(takes_latest ? side.LatestAmax() : side.LargestAmax());
  }
  return "";
}

/// Takes the rule by which blocks choose between two scales.
std::string TakeFourOverSix(const RecordedOperand& operand) {
  const Operation& operation = operand.given.operation;
  const std::string name = fmt::format("{}_four_over_six", operand.name);
  const auto rule = operation.texts.find(name);
  if (rule == operation.texts.end()) return "";
  const double largest = operation.Number("largest_block_scale", 448.0);
  if ((rule->second != "mae" && rule->second != "mse") ||
      (largest != 448.0 && largest != 256.0)) {
    Reject(operand,
           fmt::format("{} is `{}`, with a largest_block_scale of {}", name,
                       Printable(rule->second), largest),
           "`mae` or `mse`, with 448 or 256");
  }
  const formats::Quantization& of_recipe = *operand.sides[0]->quantization;
  if (!of_recipe.scales_tensor() || of_recipe.element->name != "e2m1") {
    return fmt::format("{} is given, but the recipe has no NVFP4 here", name);
  }
  for (Side* side : operand.sides) {
    if (side->random_bits > 0) return "four-over-six was rounded at random";
    side->four_over_six = {.by_squares = rule->second == "mse",
                           .largest_scale = static_cast<float>(largest)};
  }
  return "";
}

/// Returns the largest magnitude of values as the rule quantises them.
float AmaxOf(const Side& side, MatrixView<const float> values,
             const formats::Quantization& rule) {
  const ScalarTensor tensor = oracle::ScalarQuantize(
      side.down ? Transposed(values).view() : values, rule, side.state);
  return LargestOf(LargestOfCells(tensor));
}

/// Lets groups share a scale if the file has a single one for all of them.
void TakeSharedScale(const RecordedOperand& operand) {
  const auto scales = ScalesOf(operand.given.operation, operand.name);
  const formats::Quantization& rule = *operand.sides[0]->quantization;
  if (!scales || operand.sides.size() < 2) return;
  const bool is_whole = rule.cell == formats::Cell{0, 0};
  const size_t count = rule.scales_tensor() ? scales->of_tensors.size()
                       : is_whole           ? scales->values.size()
                                            : 0;
  if (count != 1) return;
  float amax = 0.0f;
  for (const Side* side : operand.sides) {
    amax = std::max(amax, AmaxOf(*side, side->values, rule));
  }
  for (Side* side : operand.sides) side->shared_amax = amax;
}

/// Takes the largest magnitude over all ranks for the scale of the tensor.
/// Returns why it can't.
std::string TakeAmaxOfRanks(const RecordedOperand& operand) {
  const formats::Quantization& rule = *operand.sides[0]->quantization;
  const bool is_whole =
      rule.scales_tensor() || rule.cell == formats::Cell{0, 0};
  const bool is_declared = HaveRanksOneScale(operand);
  if (!is_whole) return "";
  const auto others = OnOtherRanks(operand, 0);
  if (!others) {
    return is_declared ? "its scale is that of all ranks, whose files are "
                         "missing"
                       : "";
  }
  if (others->empty()) return "";
  float amax = 0.0f;
  for (const Side* side : operand.sides) {
    amax = std::max(amax, AmaxOf(*side, side->values, rule));
  }
  const float own = amax;
  for (const Operation* call : *others) {
    const Floats* tensor = call->Find(operand.tensor);
    if (tensor == nullptr) continue;
    amax = std::max(amax, AmaxOf(*operand.sides[0], tensor->Rows(), rule));
  }
  for (Side* side : operand.sides) {
    if (is_declared) side->shared_amax = amax;
    if (!is_declared && amax > own) side->amax_of_ranks = amax;
  }
  return "";
}

/// Returns one tensor for each side; nothing if a change fails.
std::optional<std::vector<ScalarTensor>> TensorsOf(
    const RecordedOperand& operand) {
  std::vector<ScalarTensor> tensors;
  for (const Side* side : operand.sides) {
    std::optional<ScalarTensor> tensor = Quantized(*side);
    if (!tensor || tensor->codes.cols() != side->depth()) return std::nullopt;
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

/// Replaces scales by those of the file. Returns false if they do not fit.
bool ReplaceScales(const RecordedOperand& operand,
                   std::vector<ScalarTensor>& tensors) {
  const auto scales = ScalesOf(operand.given.operation, operand.name);
  if (!scales) return false;
  const std::vector<const Side*> sides(operand.sides.begin(),
                                       operand.sides.end());
  const ScaleGrid grid = ScaleGrid::Of(sides, tensors, *scales);
  const bool is_apart = !scales->of_tensors.empty();
  if (!grid.Fits(*scales) ||
      (is_apart && scales->of_tensors.size() != sides.size() &&
       !sides[0]->shared_amax)) {
    return false;
  }
  for (size_t g = 0; g < sides.size(); ++g) {
    ScalarTensor& tensor = tensors[g];
    if (is_apart) {
      tensor.tensor_scale =
          scales->of_tensors[std::min(g, scales->of_tensors.size() - 1)];
    } else if (!scales->has_bytes()) {
      tensor.tensor_scale = 1.0f;
    }
    const size_t across =
        (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
    for (size_t i = 0; i < tensor.codes.rows(); i += tensor.cell_rows) {
      for (size_t k = 0; k < tensor.codes.cols(); k += tensor.cell_cols) {
        const bool down = sides[g]->down;
        tensor.scales[i / tensor.cell_rows * across + k / tensor.cell_cols]
            .decode = scales->values[grid.Of(g, down ? k : i, down ? i : k)];
      }
    }
  }
  return true;
}

}  // namespace

const Codes* RecordedOperand::codes() const {
  return given.operation.FindCodes(fmt::format("{}_codes", name));
}

std::string TakeState(const RecordedOperand& operand) {
  const std::optional<formats::Quantization> of_recipe =
      operand.sides[0]->quantization;
  if (!of_recipe) return "";
  TakeSharedScale(operand);
  if (of_recipe->is_stochastic()) {
    for (Side* side : operand.sides) {
      side->random_bits = of_recipe->random_bits;
      side->quantization->rounding = formats::RoundingMode::kTowardZero;
      side->quantization->random_bits = 0;
    }
  }
  // TransformerEngine transforms in BF16.
  for (Side* side : operand.sides) {
    side->rounds_rotation =
        of_recipe->transform == formats::Transform::kHadamard16Te;
  }
  if (of_recipe->transform == formats::Transform::kHadamard16Random) {
    std::string missing = TakeSigns(operand);
    if (!missing.empty()) return missing;
  }
  if (of_recipe->reads_history()) return TakeHistory(operand);
  const std::string missing = TakeAmaxOfRanks(operand);
  return missing.empty() ? TakeFourOverSix(operand) : missing;
}

bool TakeScales(const RecordedOperand& operand) {
  std::optional<std::vector<ScalarTensor>> tensors = TensorsOf(operand);
  if (!tensors || !ReplaceScales(operand, *tensors)) return false;
  for (size_t g = 0; g < tensors->size(); ++g) {
    std::vector<ScalarScale> scales = (*tensors)[g].scales;
    for (ScalarScale& scale : scales) scale.encode = 1.0f / scale.decode;
    operand.sides[g]->change = [scales](ScalarTensor& tensor,
                                        const formats::Quantization& rule) {
      if (scales.size() != tensor.scales.size()) return false;
      tensor.scales = scales;
      const oracle::ScalarCoder coder(rule);
      for (size_t i = 0; i < tensor.codes.rows(); ++i) {
        for (size_t k = 0; k < tensor.codes.cols(); ++k) {
          tensor.codes(i, k) =
              coder.Code(tensor.elements(i, k), tensor.ScaleAt(i, k), 0);
        }
      }
      return true;
    };
  }
  return true;
}

bool TakeCodes(const RecordedOperand& operand) {
  const Codes* codes = operand.codes();
  const formats::Format& element = *operand.sides[0]->quantization->element;
  if (codes == nullptr || codes->type != element.name) return false;
  std::optional<std::vector<ScalarTensor>> tensors = TensorsOf(operand);
  if (!tensors || !ReplaceScales(operand, *tensors)) return false;
  size_t code = 0;
  for (size_t g = 0; g < tensors->size(); ++g) {
    Side& side = *operand.sides[g];
    for (size_t r = 0; r < side.values.rows(); ++r) {
      for (size_t c = 0; c < side.values.cols(); ++c) {
        (side.down ? (*tensors)[g].codes(c, r) : (*tensors)[g].codes(r, c)) =
            formats::Decode(element, codes->values[code++]);
      }
    }
    side.fixed = std::make_shared<const ScalarTensor>(std::move((*tensors)[g]));
    side.is_recorded = true;
    side.change = nullptr;
  }
  return true;
}

}  // namespace isoloss::operations
