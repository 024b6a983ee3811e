#include "isoloss/layouts/step_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "isoloss/base/printable.h"
#include "isoloss/inspection/check_tensors.h"
#include "isoloss/layouts/difference.h"
#include "isoloss/layouts/gradients.h"
#include "isoloss/layouts/mistakes.h"
#include "isoloss/layouts/partial_sums.h"
#include "isoloss/layouts/row_order.h"

namespace isoloss::layouts {
namespace {

using operations::Finding;
using operations::Integers;
using precision::GemmRole;

constexpr double kNoBound = std::numeric_limits<double>::quiet_NaN();
/// A coarser difference than this is named by no comparison of numbers.
constexpr double kMostBound = 0.25;

/// Returns the spacing of a type's numbers, relative to the number. FP32 sums
/// of up to `terms` terms are off by the root of that many roundings.
double UnitOf(const std::string& type, size_t terms) {
  if (type == "bfloat16") return 0x1p-8;
  if (type == "float16") return 0x1p-11;
  return 0x1p-24 * std::sqrt(static_cast<double>(std::max<size_t>(terms, 16)));
}

std::string Name(const OperationKey& key) {
  return fmt::format("{} ({})", Printable(key.module), key.type);
}

/// A part of the oracle's finding belongs to the backward pass.
bool IsBackward(const std::string& part) {
  return part.starts_with("dgrad") || part.starts_with("wgrad");
}

class StepComparison {
 public:
  StepComparison(const Batch& a, const Batch& b, const CheckedSide& side_a,
                 const CheckedSide& side_b, Carry& carry,
                 LayoutsComparison& result)
      : a_(a),
        b_(b),
        sides_{&side_a, &side_b},
        carry_(carry),
        result_(result),
        counts_(RankCountsOf(b.recording(), b.micro_batches())) {
    for (const RankCount& count :
         RankCountsOf(a.recording(), a.micro_batches())) {
      if (std::ranges::find(counts_, count.count, &RankCount::count) ==
          counts_.end()) {
        counts_.push_back(count);
      }
    }
  }

  void Run() {
    AddPartings();
    if (!OrderTokens()) return;
    std::vector<OperationKey> both;
    for (const OperationKey& key : a_.order()) {
      if (!b_.Of(key).empty()) both.push_back(key);
    }
    AddOneSided();
    FindScales(both);
    for (const OperationKey& key : both) {
      if (!IsUpdate(key)) Forward(key);
    }
    before_ = "the loss";
    for (size_t i = both.size(); i-- > 0;) {
      if (!IsUpdate(both[i])) Backward(both[i]);
    }
    Reductions();
    for (const OperationKey& key : both) {
      if (IsUpdate(key)) Update(key);
    }
    carry_.is_first_step = false;
    carry_.parameters = parameters_after_;
  }

 private:
  // ---- rows -----------------------------------------------------------------

  bool OrderTokens() {
    order_ = OrderOfTokens(a_, b_);
    skipped_.assign(order_.b_of_a.size(), false);
    if (!order_.mismatch.empty()) {
      TensorResult& entry = Add({"loss", ""}, "labels", Status::kNotExplained);
      entry.mistake = "other_tokens";
      entry.text = order_.mismatch +
                   ". Nothing else of the step was compared: give steps of one "
                   "batch.";
      return false;
    }
    if (order_.is_assumed) {
      Note("Nothing tells which tokens belong together, so that those of B are "
           "taken to have the order of A: record losses with their labels.");
    } else if (!order_.is_same) {
      Note("Tokens of B stand in another order, and were matched by their "
           "labels and rows.");
    }
    return true;
  }

  /// Puts rows of B in the order of A; nothing if there are others.
  std::optional<Whole> InOrder(Whole whole) const {
    if (whole.values.rows() != order_.b_of_a.size()) return std::nullopt;
    if (order_.is_same) return whole;
    return Picked(whole, order_.b_of_a);
  }

  static Whole Picked(const Whole& whole, const std::vector<size_t>& rows) {
    Whole picked;
    picked.type = whole.type;
    picked.values.ResizeUninitialized(rows.size(), whole.values.cols());
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(whole.values.Row(rows[i]), whole.values.cols(),
                  picked.values.Row(i));
      picked.piece_of_row.push_back(whole.piece_of_row[rows[i]]);
    }
    return picked;
  }

  struct Pair {
    Whole a;
    Whole b;
  };

  /// Returns the tensor of both sides, row by row of one token.
  std::optional<Pair> Tokens(const OperationKey& key,
                             const std::string& tensor) {
    auto a = a_.Rows(key, tensor);
    auto b = b_.Rows(key, tensor);
    if (a && b && a->values.cols() == b->values.cols() &&
        a->values.rows() == b->values.rows()) {
      if (key.type == "grouped_linear") return Grouped(key, *a, *b);
      if (a->values.rows() != skipped_.size()) {
        return Pair{std::move(*a), std::move(*b)};
      }
      if (auto ordered = InOrder(std::move(*b))) {
        return Pair{std::move(*a), std::move(*ordered)};
      }
      return std::nullopt;
    }
    if (a && b && key.type == "grouped_linear" &&
        a->values.cols() == b->values.cols()) {
      return Grouped(key, *a, *b);
    }
    Missing(key, tensor, a.has_value(), b.has_value());
    return std::nullopt;
  }

  void Missing(const OperationKey& key, const std::string& tensor, bool in_a,
               bool in_b) {
    const bool has_a = a_.Has(key, tensor);
    const bool has_b = b_.Has(key, tensor);
    if (!has_a && !has_b) return;
    TensorResult& entry = Add(key, tensor, Status::kNotJudged);
    entry.text = !has_a || !has_b
                     ? fmt::format("Only {} recorded it.", has_a ? "A" : "B")
                 : in_a && in_b
                     ? std::string("A and B have it in other shapes.")
                     : std::string("Some ranks or calls left it out.");
  }

  /// Picks the rows of experts that both sides have, as their inputs tell.
  std::optional<Pair> Grouped(const OperationKey& key, const Whole& a,
                              const Whole& b) const {
    if (rows_.key != key) return std::nullopt;
    return Pair{Picked(a, rows_.of_a), Picked(b, rows_.of_b)};
  }

  /// Lists the rows of each expert.
  static std::vector<std::vector<size_t>> RowsByExpert(const Batch& batch,
                                                       const OperationKey& key) {
    std::vector<std::vector<size_t>> rows;
    size_t first_row = 0;
    for (const Piece& piece : batch.Of(key)) {
      const Integers& ends = *piece.operation->FindIntegers("group_ends");
      size_t begin = 0;
      for (size_t e = 0; e < ends.values.size(); ++e) {
        const auto end = static_cast<size_t>(ends.values[e]);
        const size_t expert = piece.first_expert + e;
        if (rows.size() <= expert) rows.resize(expert + 1);
        for (size_t i = begin; i < end; ++i) {
          rows[expert].push_back(first_row + i);
        }
        begin = end;
      }
      first_row += piece.operation->Find("x")->extent[0];
    }
    return rows;
  }

  /// Matches the rows of each expert by what they hold.
  void MatchRows(const OperationKey& key) {
    rows_ = {.key = key};
    const auto a = a_.Rows(key, "x");
    const auto b = b_.Rows(key, "x");
    if (!a || !b || a->values.cols() != b->values.cols()) return;
    auto of_a = RowsByExpert(a_, key);
    auto of_b = RowsByExpert(b_, key);
    const size_t experts = std::max(of_a.size(), of_b.size());
    of_a.resize(experts);
    of_b.resize(experts);
    size_t lost = 0;
    for (size_t e = 0; e < experts; ++e) {
      const Whole x = Picked(*a, of_a[e]);
      const Whole y = Picked(*b, of_b[e]);
      const auto nearest = NearestRows(x.view(), y.view());
      size_t matched = 0;
      for (size_t i = 0; i < nearest.size(); ++i) {
        if (nearest[i] == kNoRow) continue;
        ++matched;
        rows_.of_a.push_back(of_a[e][i]);
        rows_.of_b.push_back(of_b[e][nearest[i]]);
      }
      lost += std::max(of_a[e].size(), of_b[e].size()) - matched;
    }
    if (lost <= flipped_slots_) return;
    TensorResult& entry =
        Add(key, "rows of experts",
            has_router_ ? Status::kNotExplained : Status::kNotJudged);
    entry.elements = static_cast<int64_t>(a->values.rows());
    entry.different = static_cast<int64_t>(lost);
    entry.mistake = has_router_ ? "rows_lost" : "";
    entry.text = fmt::format(
        "{} rows of A or B have no like on the other side (A has {} rows, B "
        "{}), but {} slots of tokens were routed otherwise: tokens were "
        "dropped, came twice, or came to another expert.",
        lost, a->values.rows(), b->values.rows(), flipped_slots_);
  }

  // ---- entries --------------------------------------------------------------

  TensorResult& Add(const OperationKey& key, const std::string& tensor,
                    Status status) {
    return result_.tensors.emplace_back(
        TensorResult{.step = a_.step(),
                     .type = key.type,
                     .module = key.module,
                     .tensor = tensor,
                     .status = status,
                     .bound = kNoBound});
  }
  void Note(std::string text) {
    if (std::ranges::find(result_.notes, text) == result_.notes.end()) {
      result_.notes.push_back(std::move(text));
    }
  }

  /// Adds tensors that several ranks hold and that are not equal.
  void AddPartings() {
    for (const auto& [batch, side] :
         {std::pair(&a_, sides_[0]), std::pair(&b_, sides_[1])}) {
      for (const Parting& parting : batch->partings()) {
        TensorResult& entry =
            Add(parting.key, parting.tensor, Status::kNotExplained);
        entry.mistake = "replicas_part";
        entry.text = fmt::format(
            "In {} ranks {} and {} should hold the same and do not: an "
            "all-reduce between them is missing, or an input of one rank is "
            "another.",
            side->name, parting.first_rank, parting.second_rank);
        if (parting.first->extent != parting.second->extent) continue;
        const Difference d =
            Differ(parting.first->Rows(), parting.second->Rows());
        entry.elements = d.elements;
        entry.different = d.different;
        entry.relative = d.relative;
      }
    }
  }

  void AddOneSided() {
    for (const auto& [batch, other, side] :
         {std::tuple(&a_, &b_, "A"), std::tuple(&b_, &a_, "B")}) {
      for (const OperationKey& key : batch->order()) {
        if (!other->Of(key).empty()) continue;
        Add(key, "all", Status::kNotJudged).text =
            fmt::format("Only {} recorded it.", side);
      }
    }
  }

  /// Adds what no order of sums explains in one operation, by its own inputs.
  /// Returns whether it added anything.
  bool AddWrong(const OperationKey& key, bool backward) {
    bool any = false;
    for (const CheckedSide* side : sides_) {
      const Batch& batch = side == sides_[0] ? a_ : b_;
      std::set<std::string> told;
      for (const Finding& finding : side->wrong) {
        if (IsBackward(finding.part) != backward) continue;
        for (const Piece& piece : batch.Of(key)) {
          if (piece.file != finding.file || piece.index != finding.operation) {
            continue;
          }
          AddFinding(key, *side, piece, finding, told);
          any = true;
        }
      }
    }
    return any;
  }

  void AddFinding(const OperationKey& key, const CheckedSide& side,
                  const Piece& piece, const Finding& finding,
                  std::set<std::string>& told) {
    const auto row = finding.comparison.Row();
    const auto role = RoleOf(finding);
    const std::string tensor = role ? ResultName(*role) : finding.part;
    // Ranks and calls share mistakes; the first one tells.
    if (!told.insert(tensor).second) return;
    TensorResult& entry = Add(key, tensor, Status::kNotExplained);
    entry.elements = row.elements;
    entry.different = row.other;
    Mistake mistake;
    if (role) mistake = MistakeOfProduct(side, piece, *role, entry);
    entry.mistake = mistake.name;
    entry.where = mistake.where;
    const auto& file = side.recording.files[piece.file];
    const std::string of = fmt::format(
        "In {} rank {}, call {}: {} of {} elements do not follow from the "
        "operation's own inputs. ",
        side.name, file.rank, piece.call, row.other, row.elements);
    entry.text =
        of + (mistake.name.empty()
                  ? inspection::Sentences(finding)
                  : fmt::format("Likely {}.", mistake.sentence));
    if (mistake.name.empty() && finding.explanation) {
      entry.mistake = finding.explanation->name;
    }
  }

  static std::optional<GemmRole> RoleOf(const Finding& finding) {
    for (const GemmRole role : precision::kGemmRoles) {
      if (finding.part == GemmRoleName(role)) return role;
    }
    return std::nullopt;
  }

  /// Compares a product with what mistakes of a layout would give.
  Mistake MistakeOfProduct(const CheckedSide& side, const Piece& piece,
                           GemmRole role, TensorResult& entry) const {
    const operations::Operation& operation = *piece.operation;
    const operations::OperationCase given = {
        .operation = operation,
        .previous = nullptr,
        .where = side.recording.files[piece.file].Where(piece.index),
        .file = piece.file,
        .index = piece.index};
    for (const operations::Product& product : LinearProductsOf(
             given,
             {side.modules.Of(operation).precision, side.recipe})) {
      if (product.role != role) continue;
      // Candidates need a product of the whole tensor each.
      constexpr double kMostMultiplyAdds = 0x1p31;
      if (MultiplyAdds(product) > kMostMultiplyAdds) break;
      const Matrix<float> exact = ExactProduct(product);
      entry.relative = Differ(exact.view(), product.output).relative;
      const double unit =
          UnitOf(operation.Find(ResultName(role))->type, product.output.cols());
      return NameMistake({.expected = exact.view(),
                          .found = product.output,
                          .bound = 4 * unit,
                          .counts = counts_,
                          .candidates = CandidatesOf(product, counts_)});
    }
    return {};
  }

  // ---- judging --------------------------------------------------------------

  /// Adds a result that each side computed from its own inputs, as the oracle
  /// confirmed, or that it wrongly computed, as AddWrong told.
  void AddResult(const OperationKey& key, const std::string& tensor,
                 const Pair& pair, bool raises = true) {
    const std::vector<bool>& skipped = SkippedFor(key, pair);
    const Difference d = Differ(pair.a.view(), pair.b.view(), skipped);
    if (raises) Raise(d);
    Widen(pair);
    if (IsTold(key, tensor)) return;
    TensorResult& entry =
        Add(key, tensor, d.different == 0 ? Status::kEqual : Status::kExplained);
    Fill(d, entry);
    if (!d.is_finite) NotFinite(entry);
  }

  /// Adds a tensor that something made which is not recorded.
  void AddInput(const OperationKey& key, const std::string& tensor,
                const Pair& pair) {
    const std::vector<bool>& skipped = SkippedFor(key, pair);
    const Difference d = Differ(pair.a.view(), pair.b.view(), skipped);
    Widen(pair);
    const double bound = kLargestGrowth * std::max(levels_.relative, unit_);
    const double row_bound = kLargestGrowth * std::max(levels_.row, 4 * unit_);
    Status status = d.different == 0 ? Status::kEqual : Status::kExplained;
    const bool is_far = d.relative > bound || d.largest_row > row_bound;
    const size_t shards =
        !is_far && d.relative > unit_
            ? ShardsWithFactors(pair.a.view(), pair.b.view(), counts_)
            : 0;
    if (is_far || shards > 0) status = Status::kNotExplained;
    TensorResult& entry = Add(key, tensor, status);
    Fill(d, entry);
    entry.bound = bound;
    Raise(d);
    if (!d.is_finite) return NotFinite(entry);
    if (status != Status::kNotExplained) return;
    const Mistake mistake =
        NameMistake({.expected = pair.a.view(),
                     .found = pair.b.view(),
                     .bound = std::min({bound, kMostBound, 0.5 * d.relative}),
                     .counts = counts_});
    entry.mistake = mistake.name;
    entry.where = mistake.where;
    entry.text = fmt::format(
        "It lies between {} and {}: B differs from A by {:.2g} of its size{}, "
        "but what was computed before it explains {:.2g}.{}",
        before_, Name(key), d.relative,
        d.relative <= bound && shards == 0
            ? fmt::format(" and by {:.2g} in one row", d.largest_row)
            : "",
        d.relative <= bound && shards == 0 ? row_bound : bound,
        mistake.name.empty() ? ""
                             : fmt::format(" Likely {}.", mistake.sentence));
  }

  /// Adds a weight or state, which an earlier step left.
  void AddState(const OperationKey& key, const std::string& tensor) {
    auto a = a_.Shared(key, tensor);
    auto b = b_.Shared(key, tensor);
    if (!a || !b || a->values.rows() != b->values.rows() ||
        a->values.cols() != b->values.cols()) {
      return Missing(key, tensor, a.has_value(), b.has_value());
    }
    const Pair pair = {std::move(*a), std::move(*b)};
    const Difference d = Differ(pair.a.view(), pair.b.view());
    const double bound =
        kLargestGrowth *
        std::max(carry_.parameters, UnitOf(pair.a.type, pair.a.values.cols()));
    TensorResult& entry =
        Add(key, tensor, d.different == 0 ? Status::kEqual : Status::kExplained);
    Fill(d, entry);
    entry.bound = bound;
    Raise(d);
    if (!d.is_finite) return NotFinite(entry);
    const bool is_start = carry_.is_first_step && a_.step() == 1;
    if (d.different == 0 || (!is_start && d.relative <= bound)) return;
    const Mistake mistake =
        NameMistake({.expected = pair.a.view(),
                     .found = pair.b.view(),
                     .bound = std::min({bound, kMostBound, 0.5 * d.relative}),
                     .counts = counts_});
    entry.mistake = mistake.name;
    entry.where = mistake.where;
    entry.status = carry_.is_first_step && !is_start && mistake.name.empty()
                       ? Status::kNotJudged
                       : Status::kNotExplained;
    entry.text =
        (is_start ? std::string("Layouts must begin with equal values.")
                  : fmt::format("The steps before may leave a difference of "
                                "{:.2g}, but it is {:.2g}.",
                                bound, d.relative)) +
        (mistake.name.empty() ? ""
                              : fmt::format(" Likely {}.", mistake.sentence));
  }

  static void Fill(const Difference& d, TensorResult& entry) {
    entry.elements = d.elements;
    entry.different = d.different;
    entry.relative = d.relative;
  }
  static void NotFinite(TensorResult& entry) {
    if (entry.different == 0) return;
    entry.status = Status::kNotJudged;
    entry.text = "It holds elements that are not finite.";
  }
  void Raise(const Difference& d) {
    if (!std::isfinite(d.relative)) return;
    levels_.relative = std::max(levels_.relative, d.relative);
    levels_.row = std::max(levels_.row, d.largest_row);
  }
  void Widen(const Pair& pair) {
    for (const Whole* whole : {&pair.a, &pair.b}) {
      unit_ = std::max(unit_, UnitOf(whole->type, whole->values.cols()));
    }
  }
  bool IsTold(const OperationKey& key, const std::string& tensor) const {
    return std::ranges::any_of(result_.tensors, [&](const TensorResult& e) {
      return e.step == a_.step() && e.type == key.type &&
             e.module == key.module && e.tensor == tensor;
    });
  }
  const std::vector<bool>& SkippedFor(const OperationKey& key,
                                      const Pair& pair) const {
    static const std::vector<bool> kNone;
    return key.type != "grouped_linear" &&
                   pair.a.values.rows() == skipped_.size()
               ? skipped_
               : kNone;
  }

  // ---- forward --------------------------------------------------------------

  void Input(const OperationKey& key, const std::string& tensor) {
    if (const auto pair = Tokens(key, tensor)) AddInput(key, tensor, *pair);
  }
  void Result(const OperationKey& key, const std::string& tensor) {
    if (const auto pair = Tokens(key, tensor)) AddResult(key, tensor, *pair);
  }

  void Forward(const OperationKey& key) {
    if (key.type == "grouped_linear") MatchRows(key);
    if (key.type == "linear" || key.type == "grouped_linear") {
      Input(key, "x");
      AddState(key, "weight");
      AddState(key, "bias");
      AddWrong(key, /*backward=*/false);
      Result(key, "output");
    } else if (key.type == "router") {
      has_router_ = true;
      const bool has_logits = a_.Has(key, "logits") && b_.Has(key, "logits");
      Input(key, "logits");
      AddState(key, "bias");
      AddWrong(key, false);
      has_logits ? Result(key, "scores") : Input(key, "scores");
      Route(key);
    } else if (key.type == "dispatch") {
      Input(key, "tokens");
      AddWrong(key, false);
    } else if (key.type == "combine") {
      Input(key, "addend");
      AddWrong(key, false);
      // Rows are not compared one by one, so their sums are judged as an input.
      if (!IsTold(key, "output")) Input(key, "output");
    } else {
      Input(key, "logits");
      AddWrong(key, false);
      Loss(key);
    }
    before_ = Name(key);
  }

  static std::vector<std::vector<int64_t>> ChoicesOf(const Batch& batch,
                                                     const OperationKey& key) {
    std::vector<std::vector<int64_t>> choices;
    for (const Piece& piece : batch.Of(key)) {
      const Integers* ids = piece.operation->FindIntegers("expert_ids");
      if (ids == nullptr) return {};
      const size_t slots = ids->extent[1];
      for (size_t t = 0; t < ids->extent[0]; ++t) {
        auto& row = choices.emplace_back(
            ids->values.begin() + static_cast<ptrdiff_t>(t * slots),
            ids->values.begin() + static_cast<ptrdiff_t>((t + 1) * slots));
        std::ranges::sort(row);
      }
    }
    return choices;
  }

  /// Counts tokens that chose other experts. Each side's choice follows from
  /// its own scores, or AddWrong told so; scores are judged before. So the
  /// scores that changed places differ by no more than scores do.
  void Route(const OperationKey& key) {
    const auto of_a = ChoicesOf(a_, key);
    const auto of_b = ChoicesOf(b_, key);
    if (of_a.empty() && of_b.empty()) return;
    if (of_a.size() != of_b.size() || of_a.size() != skipped_.size()) {
      return Missing(key, "expert_ids", !of_a.empty(), !of_b.empty());
    }
    int64_t flipped = 0;
    for (size_t t = 0; t < of_a.size(); ++t) {
      const auto& x = of_a[t];
      const auto& y = of_b[order_.b_of_a[t]];
      if (x == y) continue;
      ++flipped;
      std::vector<int64_t> common;
      std::ranges::set_intersection(x, y, std::back_inserter(common));
      flipped_slots_ += 2 * (std::max(x.size(), y.size()) - common.size());
      skipped_[t] = true;
    }
    if (IsTold(key, "expert_ids")) return;
    TensorResult& entry =
        Add(key, "expert_ids",
            flipped == 0 ? Status::kEqual : Status::kExplained);
    entry.elements = static_cast<int64_t>(of_a.size());
    entry.different = flipped;
    if (flipped == 0) return;
    entry.text = fmt::format(
        "{} of {} tokens chose other experts, as their scores are near each "
        "other. Their rows do not count from here on.",
        flipped, of_a.size());
    flipped_ = std::ranges::count(skipped_, true);
  }

  /// Compares the mean loss over all labels.
  void Loss(const OperationKey& key) {
    double losses[2] = {};
    std::string type;
    for (const auto& [batch, loss] :
         {std::pair(&a_, &losses[0]), std::pair(&b_, &losses[1])}) {
      double labels = 0.0;
      for (const Piece& piece : batch->Of(key)) {
        const auto counted = static_cast<double>(LabelsOf(piece));
        const operations::Floats& value = *piece.operation->Find("loss");
        *loss += counted * static_cast<double>(value.values[0]);
        labels += counted;
        type = value.type;
      }
      *loss /= std::max(labels, 1.0);
    }
    if (!IsTold(key, "loss")) {
      TensorResult& entry = Add(key, "loss", Status::kExplained);
      entry.elements = 1;
      entry.different = losses[0] == losses[1] ? 0 : 1;
      if (entry.different == 0) entry.status = Status::kEqual;
      entry.relative = std::fabs(losses[1] - losses[0]) /
                       std::max(std::fabs(losses[0]), 1e-300);
    }
  }

  static int64_t LabelsOf(const Piece& piece) {
    const auto ignored = static_cast<int64_t>(
        piece.operation->Number("ignore_index", -100));
    const auto& labels = piece.operation->FindIntegers("labels")->values;
    return static_cast<int64_t>(labels.size()) -
           std::ranges::count(labels, ignored);
  }

  // ---- backward -------------------------------------------------------------

  /// Finds by which factors the gradients of B's pieces are larger than A's, as
  /// each rank divides by its own number of tokens. The last operation with a
  /// gradient tells.
  void FindScales(const std::vector<OperationKey>& both) {
    for (size_t i = both.size(); i-- > 0;) {
      const OperationKey& key = both[i];
      if (key.type != "linear" || !a_.Has(key, "grad_output") ||
          !b_.Has(key, "grad_output")) {
        continue;
      }
      const auto a = a_.Rows(key, "grad_output");
      auto rows = b_.Rows(key, "grad_output");
      if (!a || !rows || a->values.rows() != skipped_.size() ||
          rows->values.rows() != skipped_.size() ||
          a->values.cols() != rows->values.cols()) {
        continue;
      }
      const auto b = InOrder(std::move(*rows));
      std::map<size_t, Region> regions;
      for (size_t t = 0; t < skipped_.size(); ++t) {
        regions[b->piece_of_row[t]].rows.push_back(t);
      }
      scale_of_row_.assign(skipped_.size(), 1.0);
      for (auto& [piece, region] : regions) {
        region.columns = a->values.cols();
        const double scale = Snapped(
            FitFactor(a->view(), b->view(), region).factor,
            static_cast<double>(skipped_.size()) /
                static_cast<double>(region.rows.size()));
        for (const size_t t : region.rows) scale_of_row_[t] = scale;
        scales_.insert(scale);
        const Piece& of = b_.Of(key)[piece];
        scale_of_piece_[{b_.FileOf(of).data_rank, of.call}] = scale;
      }
      return;
    }
  }

  /// Returns the allowed factor that is nearest. Each side divides its loss by
  /// the labels of the batch, of its rank or of its micro-batch, or by the
  /// number of micro-batches once more.
  double Snapped(double factor, double parts) const {
    const auto factors = [](const Batch& batch, double own) {
      const auto ranks = static_cast<double>(batch.recording().data_ranks());
      const auto micro = static_cast<double>(batch.micro_batches());
      return std::vector<double>{1.0, ranks, micro, ranks * micro, own,
                                 own / micro};
    };
    double best = 1.0;
    double least = HUGE_VAL;
    for (const double b : factors(b_, parts)) {
      for (const double a : factors(a_, 1.0)) {
        const double off = std::fabs(std::log(std::fabs(factor) * a / b));
        if (off >= least) continue;
        least = off;
        best = b / a;
      }
    }
    return best;
  }

  double ScaleOf(const Piece& piece, size_t calls) const {
    const size_t call =
        piece.call / std::max<size_t>(1, calls / b_.micro_batches());
    const auto found =
        scale_of_piece_.find({b_.FileOf(piece).data_rank, call});
    if (found != scale_of_piece_.end()) return found->second;
    return scales_.empty() ? 1.0 : *scales_.begin();
  }

  /// Divides B's gradients by their factors.
  void Unscale(const OperationKey& key, Pair& pair) const {
    const bool by_token = key.type != "grouped_linear" &&
                          pair.b.values.rows() == scale_of_row_.size();
    for (size_t i = 0; i < pair.b.values.rows(); ++i) {
      const double scale = by_token          ? scale_of_row_[i]
                           : scales_.empty() ? 1.0
                                             : ScaleOfRow(pair, i);
      if (scale == 1.0) continue;
      float* row = pair.b.values.Row(i);
      for (size_t j = 0; j < pair.b.values.cols(); ++j) {
        row[j] = static_cast<float>(static_cast<double>(row[j]) / scale);
      }
    }
  }
  /// Rows of experts do not say whose tokens they are.
  double ScaleOfRow(const Pair& pair, size_t row) const {
    if (scales_.size() == 1) return *scales_.begin();
    const Region region = {.rows = {row}, .columns = pair.a.values.cols()};
    const double factor =
        FitFactor(pair.a.view(), pair.b.view(), region).factor;
    return *std::ranges::min_element(scales_, {}, [&](double scale) {
      return std::fabs(std::log(std::fabs(factor) / scale));
    });
  }

  void Backward(const OperationKey& key) {
    if (key.type != "linear" && key.type != "grouped_linear") return;
    if (key.type == "grouped_linear") MatchAgain(key);
    auto gradient = Tokens(key, "grad_output");
    if (gradient) {
      Unscale(key, *gradient);
      AddInput(key, "grad_output", *gradient);
    }
    AddWrong(key, /*backward=*/true);
    auto input = Tokens(key, "grad_input");
    if (input) {
      Unscale(key, *input);
      AddResult(key, "grad_input", *input);
    }
    AddWeightGradient(key);
    if (gradient || input) before_ = Name(key);
  }

  void MatchAgain(const OperationKey& key) {
    if (rows_.key == key) return;
    const size_t entries = result_.tensors.size();
    MatchRows(key);
    result_.tensors.resize(entries);  // lost rows were told before
  }

  void AddWeightGradient(const OperationKey& key) {
    if (!a_.Has(key, "grad_weight") || !b_.Has(key, "grad_weight")) {
      return Missing(key, "grad_weight", false, false);
    }
    size_t calls = 0;
    for (const Piece& piece : b_.Of(key)) {
      calls = std::max(calls, piece.call + 1);
    }
    Pair pair;
    pair.a.values = SumOfGradients(a_, key, [](size_t) { return 1.0; });
    pair.b.values = SumOfGradients(b_, key, [&](size_t piece) {
      return ScaleOf(b_.Of(key)[piece], calls);
    });
    if (pair.a.values.rows() != pair.b.values.rows() ||
        pair.a.values.cols() != pair.b.values.cols()) {
      return Missing(key, "grad_weight", true, true);
    }
    pair.a.type = pair.b.type = "float32";
    AddResult(key, "grad_weight", pair, /*raises=*/false);
  }

  // ---- updates --------------------------------------------------------------

  /// Checks that the optimizers read sums over all ranks and micro-batches. A
  /// parameter with other uses, such as a tied one, is no such sum in A, too.
  void Reductions() {
    const std::vector<Reduction> of_a = ReductionsOf(a_);
    for (Reduction& reduction : ReductionsOf(b_)) {
      if (reduction.mistake.sentence.empty()) continue;
      const auto same =
          std::ranges::find(of_a, reduction.update, &Reduction::update);
      if (same == of_a.end() || !same->mistake.sentence.empty()) continue;
      mistakes_[reduction.update] = reduction.mistake;
    }
  }

  void Update(const OperationKey& key) {
    if (!a_.Has(key, "parameter_before") || !b_.Has(key, "parameter_before")) {
      Add(key, "all", Status::kNotJudged).text =
          "Operations of this type are not compared.";
      return;
    }
    Gradient(key);
    std::set<std::string> names;
    for (const auto& [name, tensor] : a_.Of(key).front().operation->floats) {
      if (name.ends_with("_before")) names.insert(name);
    }
    for (const std::string& name : names) AddState(key, name);
    AddWrong(key, /*backward=*/false);
    for (const std::string& before : names) {
      const std::string name =
          before.substr(0, before.size() - std::string_view("before").size()) +
          "after";
      auto a = a_.Shared(key, name);
      auto b = b_.Shared(key, name);
      if (!a || !b || a->values.rows() != b->values.rows() ||
          a->values.cols() != b->values.cols()) {
        Missing(key, name, a.has_value(), b.has_value());
        continue;
      }
      const Pair pair = {std::move(*a), std::move(*b)};
      AddResult(key, name, pair, /*raises=*/false);
      parameters_after_ =
          std::max(parameters_after_,
                   Differ(pair.a.view(), pair.b.view()).relative);
    }
  }

  void Gradient(const OperationKey& key) {
    auto a = a_.Shared(key, "gradient");
    auto b = b_.Shared(key, "gradient");
    if (!a || !b || a->values.rows() != b->values.rows() ||
        a->values.cols() != b->values.cols()) {
      return Missing(key, "gradient", a.has_value(), b.has_value());
    }
    const Pair pair = {std::move(*a), std::move(*b)};
    const Difference d = Differ(pair.a.view(), pair.b.view());
    // Tokens that chose other experts differ by about their own size.
    const double flips =
        skipped_.empty() ? 0.0
                         : std::sqrt(static_cast<double>(flipped_) /
                                     static_cast<double>(skipped_.size()));
    const double bound =
        kLargestGrowth * std::max(levels_.relative, unit_) + flips;
    TensorResult& entry = Add(
        key, "gradient", d.different == 0 ? Status::kEqual : Status::kExplained);
    Fill(d, entry);
    entry.bound = bound;
    if (!d.is_finite) return NotFinite(entry);
    const auto told = mistakes_.find(key.module);
    if (told == mistakes_.end() && d.relative <= bound) return;
    entry.status = Status::kNotExplained;
    Mistake mistake;
    if (told != mistakes_.end()) mistake = told->second;
    if (mistake.name.empty()) {
      Mistake named = NameMistake(
          {.expected = pair.a.view(),
           .found = pair.b.view(),
           .bound = std::min({bound, kMostBound, 0.5 * d.relative}),
           .counts = counts_});
      if (named.name == "scaled") {
        named.sentence += ": clipped by another norm, or scaled otherwise";
      }
      if (!named.name.empty() || mistake.sentence.empty()) mistake = named;
    }
    if (mistake.name.empty() && scales_.size() > 1) {
      mistake.name = "mean_of_means";
      mistake.sentence =
          "ranks or micro-batches with other numbers of labels weigh alike: "
          "each took a mean over its own labels";
    }
    entry.mistake = mistake.name;
    entry.where = mistake.where;
    entry.text = fmt::format(
        "B differs from A by {:.2g} of its size, but what was computed before "
        "it explains {:.2g}.{}",
        d.relative, bound,
        mistake.sentence.empty() ? ""
                                 : fmt::format(" Likely {}.", mistake.sentence));
  }

  const Batch& a_;
  const Batch& b_;
  const CheckedSide* sides_[2];
  Carry& carry_;
  LayoutsComparison& result_;
  std::vector<RankCount> counts_;
  RowOrder order_;
  std::vector<bool> skipped_;  ///< by A's row
  struct {
    OperationKey key = {};
    std::vector<size_t> of_a = {};
    std::vector<size_t> of_b = {};
  } rows_;  ///< of the grouped operation at hand
  bool has_router_ = false;
  size_t flipped_slots_ = 0;
  int64_t flipped_ = 0;
  Levels levels_;
  double unit_ = 0.0;
  std::string before_ = "the start of the step";
  std::vector<double> scale_of_row_;
  std::set<double> scales_;
  std::map<std::pair<int64_t, size_t>, double> scale_of_piece_;
  std::map<std::string, Mistake> mistakes_;
  double parameters_after_ = 0.0;
};

}  // namespace

void CompareStep(const Batch& a, const Batch& b, const CheckedSide& side_a,
                 const CheckedSide& side_b, Carry& carry,
                 LayoutsComparison& result) {
  StepComparison(a, b, side_a, side_b, carry, result).Run();
}

}  // namespace isoloss::layouts
