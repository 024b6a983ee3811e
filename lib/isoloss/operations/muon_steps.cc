#include <algorithm>
#include <cmath>
#include <utility>

#include "isoloss/operations/estimates.h"
#include "isoloss/operations/muon.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// Returns the spacing of numbers of the grid at `value`.
double Spacing(Grid grid, double value) {
  constexpr double kOfBf16 = 0x1p16;
  constexpr double kOfFp16 = 0x1p13;
  return oracle::Ulp(value) * (grid == Grid::kBf16   ? kOfBf16
                               : grid == Grid::kFp16 ? kOfFp16
                                                     : 1.0);
}

/// Solves for the two factors of a and b that come nearest to `wanted`, and
/// returns the share of its squares that remains.
class Regression {
 public:
  void Add(double wanted, double a, double b) {
    ww_ += wanted * wanted;
    aa_ += a * a;
    bb_ += b * b;
    ab_ += a * b;
    wa_ += wanted * a;
    wb_ += wanted * b;
  }
  double Unexplained() const {
    if (!(ww_ > 0.0)) return 1.0;
    const double determinant = aa_ * bb_ - ab_ * ab_;
    double explained = aa_ > 0.0 ? wa_ * wa_ / aa_ : 0.0;
    if (determinant > 1e-12 * aa_ * bb_) {
      const double a = (wa_ * bb_ - wb_ * ab_) / determinant;
      const double b = (wb_ * aa_ - wa_ * ab_) / determinant;
      explained = a * wa_ + b * wb_;
    }
    const double share = 1.0 - explained / ww_;
    return std::isfinite(share) ? std::max(0.0, share) : 1.0;
  }

 private:
  double ww_ = 0, aa_ = 0, bb_ = 0, ab_ = 0, wa_ = 0, wb_ = 0;
};

}  // namespace

MuonShape::MuonShape(const std::vector<size_t>& extent) {
  const bool is_batch = extent.size() == 3;
  matrices = is_batch ? extent[0] : 1;
  rows = is_batch ? extent[1] : extent[0];
  cols = 1;
  for (size_t axis = is_batch ? 2 : 1; axis < extent.size(); ++axis) {
    cols *= extent[axis];
  }
}

double ScaleOf(const MuonRule& rule, size_t rows, size_t cols) {
  auto r = static_cast<double>(rows);
  auto c = static_cast<double>(cols);
  if (rule.inverts_scale) std::swap(r, c);
  switch (rule.scale) {
    case MuonRule::Scale::kNone:
      break;
    case MuonRule::Scale::kOriginal:
      return std::sqrt(std::max(1.0, r / c));
    case MuonRule::Scale::kMatchRms:
      return 0.2 * std::sqrt(std::max(r, c));
    case MuonRule::Scale::kUnclamped:
      return std::sqrt(r / c);
    case MuonRule::Scale::kSpectral:
      return std::sqrt(std::max(r, c));
  }
  return 1.0;
}

bool MuonRule::HasDirectionOf(const MuonRule& other) const {
  return input == other.input && nesterov == other.nesterov &&
         interpolates == other.interpolates &&
         decay_in_gradient == other.decay_in_gradient &&
         gradient_factor == other.gradient_factor &&
         momentum == other.momentum && iteration == other.iteration;
}

MuonSteps::MuonSteps(const OperationCase& given)
    : given_(given), shape_(given.operation.Find("parameter_before")->extent) {}

float MuonSteps::At(const char* name, size_t i) const {
  return given_.operation.Find(name)->values[i];
}

double MuonSteps::Cost(const MuonRule& rule) const {
  const auto small = static_cast<double>(std::min(shape_.rows, shape_.cols));
  const auto large = static_cast<double>(std::max(shape_.rows, shape_.cols));
  return static_cast<double>(shape_.matrices * rule.iteration.steps.size()) *
         small * small * (2 * large + small);
}

std::vector<float> MuonSteps::InputOf(const MuonRule& rule) const {
  const Operation& operation = given_.operation;
  const Floats& before = *operation.Find("momentum_before");
  const Floats* after = operation.Find("momentum_after");
  const Grid grid = GridOf(before).value_or(Grid::kFp32);
  std::vector<float> input(before.values.size());
  for (size_t i = 0; i < input.size(); ++i) {
    double g = rule.gradient_factor * static_cast<double>(At("gradient", i));
    if (rule.decay_in_gradient) {
      g += rule.weight_decay * static_cast<double>(At("parameter_before", i));
    }
    const auto last = static_cast<double>(before.values[i]);
    const double share = rule.interpolates ? 1 - rule.momentum : 1.0;
    double m = rule.momentum * last + share * g;
    if (after != nullptr) m = static_cast<double>(after->values[i]);
    if (rule.input == MuonRule::Input::kBefore) m = last;
    if (rule.input == MuonRule::Input::kGradient) m = g;
    const bool is_mixed =
        rule.nesterov && rule.input != MuonRule::Input::kGradient;
    input[i] = RoundTo(grid, is_mixed ? share * g + rule.momentum * m : m);
  }
  return input;
}

const std::vector<Direction>& MuonSteps::DirectionsOf(const MuonRule& rule,
                                                      size_t draws) {
  for (const Known& known : known_) {
    if (known.draws >= draws && known.rule.HasDirectionOf(rule)) {
      return known.directions;
    }
  }
  constexpr size_t kMost = 3;
  if (known_.size() == kMost) known_.erase(known_.begin());
  const std::vector<float> input = InputOf(rule);
  Known& known = known_.emplace_back(Known{rule, draws, {}});
  const size_t size = shape_.rows * shape_.cols;
  for (size_t i = 0; i < shape_.matrices; ++i) {
    const auto view = [&](const std::vector<float>& values) {
      return MatrixView<const float>(values.data() + i * size, shape_.rows,
                                     shape_.cols);
    };
    known.directions.push_back(DirectionOf(
        rule.iteration, view(input),
        view(given_.operation.Find("parameter_before")->values), draws));
  }
  return known.directions;
}

double MuonSteps::KeptShare(const MuonRule& rule) const {
  double decay = rule.decay_in_gradient  ? 0.0
                 : rule.decay_without_lr ? rule.weight_decay
                                         : rule.lr * rule.weight_decay;
  if (rule.decay_scaled) {
    decay *= rule.factor * ScaleOf(rule, shape_.rows, shape_.cols);
  }
  return 1 - decay;
}

double MuonSteps::Kept(const MuonRule& rule, size_t i) const {
  return static_cast<double>(At("parameter_before", i)) * KeptShare(rule);
}

std::vector<Estimate> MuonSteps::StepsOf(const MuonRule& rule, size_t draws) {
  const std::vector<Direction>& directions = DirectionsOf(rule, draws);
  const Grid grid = rule.iteration.way.grid;
  const double factor =
      rule.lr * rule.factor * ScaleOf(rule, shape_.rows, shape_.cols);
  std::vector<Estimate> steps;
  for (const Direction& direction : directions) {
    for (size_t r = 0; r < shape_.rows; ++r) {
      for (size_t c = 0; c < shape_.cols; ++c) {
        const size_t row = rule.transposes ? c : r;
        const size_t col = rule.transposes ? r : c;
        const auto value = static_cast<double>(direction.value(row, col));
        const double noise = direction.Noise(row, col);
        // The last rounding may go the other way. Few roundings of much
        // weight are not normal, so the largest difference counts, too.
        steps.push_back(
            Estimate{.exact = value,
                     .bound = Spacing(grid, value) + direction.largest,
                     .noise = noise} *
            factor);
      }
    }
  }
  return steps;
}

double MuonSteps::NoiseShare(const MuonRule& rule, size_t draws) {
  double noise = 0.0;
  double size = 0.0;
  for (const Estimate& step : StepsOf(rule, draws)) {
    noise += step.noise * step.noise;
    size += step.exact * step.exact;
  }
  return size > 0.0 ? noise / size : 0.0;
}

double MuonSteps::GradientRatio(const MuonRule& rule) const {
  if (given_.operation.Find("momentum_after") == nullptr) return 1.0;
  const double share = rule.interpolates ? 1 - rule.momentum : 1.0;
  double products = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i < shape_.matrices * shape_.rows * shape_.cols; ++i) {
    const auto g = static_cast<double>(At("gradient", i));
    const auto after = static_cast<double>(At("momentum_after", i));
    const auto before = static_cast<double>(At("momentum_before", i));
    products += (after - rule.momentum * before) * g;
    squares += share * g * g;
  }
  return products / squares;
}

double MuonSteps::Unexplained(const MuonRule& rule) {
  MuonRule once = rule;
  once.lr = 1.0;
  const std::vector<Estimate> steps = StepsOf(once, 0);
  Regression regression;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto before = static_cast<double>(At("parameter_before", i));
    const auto after = static_cast<double>(At("parameter_after", i));
    regression.Add(before - after, steps[i].exact, before);
  }
  return regression.Unexplained();
}

/// Compares p (1 - decay) - step. The decayed parameter has three roundings,
/// one of them of the factor; the step has three, and the difference is
/// rounded to the parameter's type.
static Estimate ExpectedOf(double kept, const Estimate& step) {
  const double size = std::fabs(kept) + std::fabs(step.exact);
  return {.exact = kept - step.exact,
          .bound = oracle::Gamma(4) * size + 4 * oracle::kTiny,
          .noise = step.noise};
}

/// The tolerance is six times the standard deviation that independent errors
/// would have, and ten times the root mean square of the draws, of which there
/// are few: for eight draws, 2e-5 of normal numbers are beyond. Roundings of
/// the parameter are at most twice their deviation.
MuonSteps::Multiples MuonSteps::MultiplesOf(const MuonRule& rule, size_t draws,
                                            bool rounds_kept) {
  const std::vector<Estimate> steps = StepsOf(rule, draws);
  const Floats& after = *given_.operation.Find("parameter_after");
  const Grid grid = GridOf(after, "parameter_after", given_.where);
  struct Sums {
    double product = 0, size = 0, noise = 0, rounding = 0;
    void Add(double off, double y, double noise_of_one,
             double rounding_of_one) {
      product += off * y;
      size += y * y;
      noise += noise_of_one * noise_of_one * y * y;
      rounding += rounding_of_one * rounding_of_one * y * y;
    }
    Multiple Of(double along) const {
      if (!(size > 0.0)) return {};
      return {
          product / size,
          (6 * std::sqrt(noise) + 10 * along + 2 * std::sqrt(rounding)) / size};
    }
  };
  Sums step;
  Sums parameter;
  for (size_t i = 0; i < steps.size(); ++i) {
    double kept = Kept(rule, i);
    if (rounds_kept) kept = static_cast<double>(RoundTo(grid, kept));
    const Estimate each = ExpectedOf(kept, steps[i]);
    const auto found = static_cast<double>(after.values[i]);
    const double rounding = each.bound + 0.5 * Spacing(grid, found);
    const double off = found - each.exact;
    step.Add(off, steps[i].exact, each.noise, rounding);
    parameter.Add(off, static_cast<double>(At("parameter_before", i)),
                  each.noise, rounding);
  }
  const double factor = std::fabs(rule.lr * rule.factor *
                                  ScaleOf(rule, shape_.rows, shape_.cols));
  double along_value = 0.0;
  double along_probe = 0.0;
  for (const Direction& direction : DirectionsOf(rule, draws)) {
    along_value += direction.along_value * factor * factor;
    along_probe += direction.along_probe * factor;
  }
  return {step.Of(along_value), parameter.Of(along_probe)};
}

Comparison MuonSteps::CompareBy(const std::vector<Estimate>& steps,
                                const MuonRule& rule, size_t draws,
                                bool rounds_kept) {
  const Floats& after = *given_.operation.Find("parameter_after");
  const Grid grid = GridOf(after, "parameter_after", given_.where);
  std::vector<Estimate> expected(steps.size());
  double squares = 0.0;
  double due = 0.0;
  for (size_t i = 0; i < steps.size(); ++i) {
    double kept = Kept(rule, i);
    if (rounds_kept) kept = static_cast<double>(RoundTo(grid, kept));
    expected[i] = ExpectedOf(kept, steps[i]);
    const auto found = static_cast<double>(after.values[i]);
    const double off = std::fabs(found - expected[i].exact) -
                       expected[i].bound - 0.5 * Spacing(grid, found);
    if (off > 0.0) squares += off * off;
    due += steps[i].noise * steps[i].noise;
  }
  constexpr double kFar = 6.0;
  constexpr double kNear = 2.0;
  bool is_far = squares > kNear * kNear * due;
  if (!is_far && rule.iteration.parts == 1 && !rule.transposes) {
    const Multiples multiples = MultiplesOf(rule, draws, rounds_kept);
    is_far = multiples.step.is_seen() || multiples.parameter.is_seen();
  }
  Comparison comparison(grid);
  for (size_t i = 0; i < steps.size(); ++i) {
    Estimate& each = expected[i];
    each.bound +=
        is_far ? kNear * each.noise : steps[i].bound + kFar * each.noise;
    each.noise = oracle::RootOfSquares(
        each.noise, std::sqrt(4.0 / 12.0) * oracle::Ulp(each.exact));
    comparison.Add(i / shape_.cols, i % shape_.cols, after.values[i], each);
  }
  return comparison;
}

Comparison MuonSteps::Compare(const MuonRule& rule, size_t draws) {
  std::vector<std::vector<Estimate>> ways = {StepsOf(rule, draws)};
  const Grid grid = rule.iteration.way.grid;
  const double scale = ScaleOf(rule, shape_.rows, shape_.cols);
  const double rate = rule.lr * rule.factor;
  if (grid != Grid::kFp32 && scale != 1.0 && rate != 0.0) {
    // The scaled result may be rounded before the rate multiplies it.
    std::vector<Estimate>& steps = ways.emplace_back(ways[0]);
    for (Estimate& step : steps) {
      const double due = step.exact / rate;
      step.exact = static_cast<double>(RoundTo(grid, due)) * rate;
      step.bound += std::fabs(rate) * Spacing(grid, due) / 2;
    }
  }
  const size_t parts = rule.iteration.parts;
  if (parts > 1) {
    // The scale may be that of the parts' shape.
    const double of_part =
        rule.iteration.cuts_columns
            ? ScaleOf(rule, shape_.rows, shape_.cols / parts)
            : ScaleOf(rule, shape_.rows / parts, shape_.cols);
    std::vector<Estimate>& steps = ways.emplace_back(ways[0]);
    for (Estimate& step : steps) step = step * (of_part / scale);
  }
  const bool rounds =
      given_.operation.Find("parameter_after")->type != "float32" &&
      rule.weight_decay != 0.0;
  std::optional<Comparison> best;
  for (const std::vector<Estimate>& steps : ways) {
    for (const bool rounds_kept : {false, true}) {
      if (rounds_kept && !rounds) continue;
      if (best && best->other() == 0) return *best;
      Comparison comparison = CompareBy(steps, rule, draws, rounds_kept);
      if (!best || comparison.other() < best->other()) {
        best = std::move(comparison);
      }
    }
  }
  return *best;
}

}  // namespace isoloss::operations
