#include "isoloss/layouts/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "isoloss/base/printable.h"
#include "isoloss/inspection/check_tensors.h"
#include "isoloss/layouts/partial_sums.h"

namespace isoloss::layouts {
namespace {

using operations::Finding;
using precision::GemmRole;

/// Above this, tensors have little in common, so that no mistake is confirmed.
constexpr double kMostBound = 0.25;

/// Returns the spacing of a type's numbers, relative to the number. FP32 sums
/// of up to `terms` terms are off by the root of that many roundings.
double UnitOf(const std::string& type, size_t terms) {
  if (type == "bfloat16") return 0x1p-8;
  if (type == "float16") return 0x1p-11;
  return 0x1p-24 * std::sqrt(static_cast<double>(std::max<size_t>(terms, 16)));
}

/// A part of the oracle's finding belongs to the backward pass.
bool IsBackward(const std::string& part) {
  return part.starts_with("dgrad") || part.starts_with("wgrad");
}

std::optional<GemmRole> RoleOf(const Finding& finding) {
  for (const GemmRole role : precision::kGemmRoles) {
    if (finding.part == GemmRoleName(role)) return role;
  }
  return std::nullopt;
}

/// Returns whether rows are zero in B alone, as of an embedding whose tokens
/// only other ranks have. A tenth of the rows is no coincidence.
bool LacksRows(const Pair& pair) {
  const auto is_zero = [](const Whole& whole, size_t row) {
    const float* values = whole.values.Row(row);
    return std::all_of(values, values + whole.values.cols(),
                       [](float value) { return value == 0.0f; });
  };
  size_t filled = 0;
  size_t lacking = 0;
  for (size_t i = 0; i < pair.a.values.rows(); ++i) {
    if (is_zero(pair.a, i)) continue;
    ++filled;
    lacking += is_zero(pair.b, i) ? 1 : 0;
  }
  return 10 * lacking >= filled && lacking > 0 && lacking < filled;
}

bool IsNanEverywhere(const Whole& whole) {
  const auto& values = whole.values;
  return std::all_of(values.data(), values.data() + values.size(),
                     [](float value) { return std::isnan(value); });
}

std::string Likely(const Mistake& mistake) {
  return mistake.sentence.empty()
             ? ""
             : fmt::format(" Likely {}.", mistake.sentence);
}

}  // namespace

std::string NameOf(const OperationKey& key) {
  return fmt::format("{} ({})", Printable(key.module), key.type);
}

Judge::Judge(const Batch& a, const Batch& b, const CheckedSide& side_a,
             const CheckedSide& side_b, const Carry& carry,
             LayoutsComparison& result)
    : a_(a),
      b_(b),
      sides_{&side_a, &side_b},
      carry_(carry),
      result_(result),
      counts_(RankCountsOf(b.recording(), b.micro_batches())),
      first_(result.tensors.size()) {
  for (const RankCount& count :
       RankCountsOf(a.recording(), a.micro_batches())) {
    if (std::ranges::find(counts_, count.count, &RankCount::count) ==
        counts_.end()) {
      counts_.push_back(count);
    }
  }
}

double Judge::bound() const {
  return kLargestGrowth * std::max(relative_, unit_);
}

TensorResult& Judge::Add(const OperationKey& key, const std::string& tensor,
                         Status status) {
  return result_.tensors.emplace_back(
      TensorResult{.step = a_.step(),
                   .type = key.type,
                   .module = key.module,
                   .tensor = tensor,
                   .status = status,
                   .bound = std::numeric_limits<double>::quiet_NaN()});
}

void Judge::Note(const std::string& text) {
  if (std::ranges::find(result_.notes, text) == result_.notes.end()) {
    result_.notes.push_back(text);
  }
}

void Judge::AddMissing(const OperationKey& key, const std::string& tensor) {
  const bool has_a = a_.Has(key, tensor);
  const bool has_b = b_.Has(key, tensor);
  if (!has_a && !has_b) return;
  Add(key, tensor, Status::kNotJudged).text =
      !has_a || !has_b
          ? fmt::format("Only {} recorded it.", has_a ? "A" : "B")
          : std::string(
                "A and B have it in other shapes, or some ranks or "
                "calls left it out.");
}

bool Judge::HasTold(const OperationKey& key, const std::string& tensor) const {
  return std::any_of(result_.tensors.begin() + static_cast<ptrdiff_t>(first_),
                     result_.tensors.end(), [&](const TensorResult& entry) {
                       return entry.type == key.type &&
                              entry.module == key.module &&
                              entry.tensor == tensor;
                     });
}

// ---- each side by its own inputs ------------------------------------------

void Judge::AddWrong(const OperationKey& key, bool backward) {
  for (const CheckedSide* side : sides_) {
    const Batch& batch = side == sides_[0] ? a_ : b_;
    for (const Finding& finding : side->wrong) {
      if (IsBackward(finding.part) != backward) continue;
      for (const Piece& piece : batch.Of(key)) {
        if (piece.file == finding.file && piece.index == finding.operation) {
          AddFinding(key, *side, piece, finding);
        }
      }
    }
  }
}

void Judge::AddFinding(const OperationKey& key, const CheckedSide& side,
                       const Piece& piece, const Finding& finding) {
  const auto row = finding.comparison.Row();
  const auto role = RoleOf(finding);
  const std::string tensor =
      role ? operations::ResultName(*role) : finding.part;
  // Ranks and calls share mistakes; the first one tells.
  if (HasTold(key, tensor)) return;
  TensorResult& entry = Add(key, tensor, Status::kNotExplained);
  entry.elements = row.elements;
  entry.different = row.other;
  Mistake mistake;
  if (role) mistake = MistakeOfProduct(side, piece, *role, entry);
  entry.mistake = mistake.name;
  entry.where = mistake.where;
  entry.text = fmt::format(
      "In {} rank {}, call {}: {} of {} elements do not follow from the "
      "operation's own inputs.{}",
      side.name, side.recording.files[piece.file].rank, piece.call, row.other,
      row.elements,
      mistake.name.empty() ? " " + inspection::Sentences(finding)
                           : Likely(mistake));
  if (mistake.name.empty() && finding.explanation) {
    entry.mistake = finding.explanation->name;
  }
}

/// Compares a product with what mistakes of a layout would give.
Mistake Judge::MistakeOfProduct(const CheckedSide& side, const Piece& piece,
                                GemmRole role, TensorResult& entry) const {
  const operations::Operation& operation = *piece.operation;
  const operations::OperationCase given =
      CaseOf(side.recording.files[piece.file], piece.index, piece.file);
  for (const operations::Product& product : LinearProductsOf(
           given, {side.modules.Of(operation).precision, side.recipe})) {
    if (product.role != role) continue;
    // Each candidate needs a product of the whole tensor.
    constexpr double kMostMultiplyAdds = 0x1p31;
    if (MultiplyAdds(product) > kMostMultiplyAdds) break;
    const Matrix<float> exact = ExactProduct(product);
    entry.relative = Differ(exact.view(), product.output).relative;
    const double unit =
        UnitOf(operation.Find(operations::ResultName(role))->type,
               product.output.cols());
    return NameMistake({.expected = exact.view(),
                        .found = product.output,
                        .bound = 4 * unit,
                        .counts = counts_,
                        .candidates = CandidatesOf(product, counts_)});
  }
  return {};
}

// ---- A against B ----------------------------------------------------------

TensorResult& Judge::AddDifference(const OperationKey& key,
                                   const std::string& tensor, const Pair& pair,
                                   const Difference& difference) {
  Widen(pair);
  TensorResult& entry =
      Add(key, tensor,
          difference.different == 0 ? Status::kEqual : Status::kExplained);
  entry.elements = difference.elements;
  entry.different = difference.different;
  entry.relative = difference.relative;
  if (difference.is_finite) return entry;
  const bool a = IsNanEverywhere(pair.a);
  const bool b = IsNanEverywhere(pair.b);
  if (a || b) {
    entry.status = Status::kNotJudged;
    entry.text = fmt::format("It is NaN everywhere in {}.", !b   ? "A"
                                                            : !a ? "B"
                                                                 : "A and B");
  } else if (difference.different > 0) {
    entry.status = Status::kNotJudged;
    entry.text = "It holds elements that are not finite.";
  }
  return entry;
}

void Judge::AddResult(const OperationKey& key, const std::string& tensor,
                      const Pair& pair, const std::vector<bool>& skipped) {
  const Difference d = Differ(pair.a.view(), pair.b.view(), skipped);
  Raise(d);
  if (!HasTold(key, tensor)) AddDifference(key, tensor, pair, d);
}

void Judge::AddSum(const OperationKey& key, const std::string& tensor,
                   const Pair& pair) {
  if (HasTold(key, tensor)) return;
  AddDifference(key, tensor, pair, Differ(pair.a.view(), pair.b.view()));
}

void Judge::AddInput(const OperationKey& key, const std::string& tensor,
                     const Pair& pair, const std::vector<bool>& skipped,
                     const std::string& before) {
  const Difference d = Differ(pair.a.view(), pair.b.view(), skipped);
  TensorResult& entry = AddDifference(key, tensor, pair, d);
  entry.bound = bound();
  const double row_bound = kLargestGrowth * std::max(row_, 4 * unit_);
  Raise(d);
  if (entry.status != Status::kExplained) return;
  const bool is_far = d.relative > entry.bound;
  const bool has_far_row = d.largest_row > row_bound;
  if (!is_far && !has_far_row &&
      (d.relative <= unit_ ||
       ShardsWithFactors(pair.a.view(), pair.b.view(), counts_) == 0)) {
    return;
  }
  entry.status = Status::kNotExplained;
  const Mistake mistake = Named(pair, entry.bound, d.relative);
  entry.mistake = mistake.name;
  entry.where = mistake.where;
  entry.text =
      fmt::format("It lies between {} and {}. ", before, NameOf(key)) +
      (is_far || !has_far_row
           ? fmt::format("B differs from A by {:.2g} of its size; what was "
                         "computed before it explains {:.2g}.",
                         d.relative, entry.bound)
           : fmt::format("A row of B differs from A's by {:.2g} of its size; "
                         "what was computed before it explains {:.2g}.",
                         d.largest_row, row_bound)) +
      Likely(mistake);
}

void Judge::AddState(const OperationKey& key, const std::string& tensor,
                     const Pair& pair) {
  const Difference d = Differ(pair.a.view(), pair.b.view());
  TensorResult& entry = AddDifference(key, tensor, pair, d);
  entry.bound =
      kLargestGrowth *
      std::max(carry_.parameters, UnitOf(pair.a.type, pair.a.values.cols()));
  Raise(d);
  const bool is_start = carry_.is_first_step && a_.step() == 1;
  if (entry.status != Status::kExplained ||
      (!is_start && d.relative <= entry.bound)) {
    return;
  }
  const Mistake mistake = Named(pair, entry.bound, d.relative);
  entry.mistake = mistake.name;
  entry.where = mistake.where;
  entry.status = carry_.is_first_step && !is_start && mistake.name.empty()
                     ? Status::kNotJudged
                     : Status::kNotExplained;
  entry.text =
      (is_start ? std::string("Layouts must begin with equal values.")
                : fmt::format("The steps before explain {:.2g}, but it differs "
                              "by {:.2g}.",
                              entry.bound, d.relative)) +
      Likely(mistake);
}

void Judge::AddGradient(const OperationKey& key, const Pair& pair, double extra,
                        Mistake mistake) {
  const Difference d = Differ(pair.a.view(), pair.b.view());
  const double most = bound() + extra;
  TensorResult& entry = AddDifference(key, "gradient", pair, d);
  entry.bound = most;
  const bool is_known = !mistake.sentence.empty();
  if (entry.status == Status::kNotJudged || (!is_known && d.relative <= most)) {
    return;
  }
  entry.status = Status::kNotExplained;
  if (mistake.name.empty()) {
    Mistake named = Named(pair, most, d.relative);
    if (named.name == "scaled") {
      named.sentence += ": clipped by another norm, or scaled otherwise";
    }
    if (named.name.empty() && LacksRows(pair)) {
      named.name = "all_reduce_missing";
      named.sentence =
          "rows are zero that only other ranks fill: the all-reduce is missing";
    }
    if (!named.name.empty() || !is_known) mistake = std::move(named);
  }
  entry.mistake = mistake.name;
  entry.where = mistake.where;
  entry.text = fmt::format(
      "B differs from A by {:.2g} of its size; what was computed before it "
      "explains {:.2g}.{}",
      d.relative, most, Likely(mistake));
}

Mistake Judge::Named(const Pair& pair, double bound, double relative) const {
  return NameMistake({.expected = pair.a.view(),
                      .found = pair.b.view(),
                      .bound = std::min({bound, kMostBound, 0.5 * relative}),
                      .counts = counts_});
}

void Judge::Raise(const Difference& d) {
  if (!std::isfinite(d.relative)) return;
  relative_ = std::max(relative_, d.relative);
  row_ = std::max(row_, d.largest_row);
}

void Judge::Widen(const Pair& pair) {
  for (const Whole* whole : {&pair.a, &pair.b}) {
    unit_ = std::max(unit_, UnitOf(whole->type, whole->values.cols()));
  }
}

}  // namespace isoloss::layouts
