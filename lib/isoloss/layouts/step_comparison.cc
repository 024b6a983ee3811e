#include "isoloss/layouts/step_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/printable.h"
#include "isoloss/layouts/difference.h"
#include "isoloss/layouts/gradients.h"
#include "isoloss/layouts/loss_scales.h"
#include "isoloss/layouts/token_rows.h"

namespace isoloss::layouts {
namespace {

const Mistake kMeanOfMeans = {"mean_of_means",
                              "ranks or micro-batches with other numbers of "
                              "labels weigh alike: each took "
                              "a mean over its own labels"};

class StepComparison {
 public:
  StepComparison(const Batch& a, const Batch& b, const CheckedSide& side_a,
                 const CheckedSide& side_b, Carry& carry,
                 LayoutsComparison& result)
      : a_(a),
        b_(b),
        carry_(carry),
        judge_(a, b, side_a, side_b, carry, result),
        rows_(a, b),
        both_(InBoth(a, b)),
        scales_(a, b, rows_, both_) {}

  void Run() {
    AddPartings(a_, "A");
    AddPartings(b_, "B");
    if (!HaveSameTokens()) return;
    AddOneSided(a_, b_, "A");
    AddOneSided(b_, a_, "B");
    for (const OperationKey& key : both_) {
      if (!IsUpdate(key)) Forward(key);
    }
    before_ = "the loss";
    for (size_t i = both_.size(); i-- > 0;) Backward(both_[i]);
    FindMistakesOfReductions();
    for (const OperationKey& key : both_) {
      if (IsUpdate(key)) Update(key);
    }
    CompareNorms();
    carry_ = {.is_first_step = false, .parameters = parameters_after_};
  }

 private:
  static std::vector<OperationKey> InBoth(const Batch& a, const Batch& b) {
    std::vector<OperationKey> both;
    for (const OperationKey& key : a.order()) {
      if (!b.Of(key).empty()) both.push_back(key);
    }
    return both;
  }

  bool HaveSameTokens() {
    const RowOrder& order = rows_.order();
    if (!order.mismatch.empty()) {
      TensorResult& entry =
          judge_.Add({"loss", ""}, "labels", Status::kNotExplained);
      entry.mistake = "other_tokens";
      entry.text = order.mismatch +
                   ". Nothing else of the step was compared: give steps of one "
                   "batch.";
      return false;
    }
    if (order.is_assumed) {
      judge_.Note(
          "Nothing tells which tokens belong together, so that those of B are "
          "taken to have the order of A: record losses with their labels.");
    } else if (!order.is_same) {
      judge_.Note(
          "Tokens of B stand in another order, and were matched by their "
          "labels and rows.");
    }
    return true;
  }

  /// Adds tensors that several ranks hold and that are not equal.
  void AddPartings(const Batch& batch, const char* side) {
    for (const Parting& parting : batch.partings()) {
      TensorResult& entry =
          judge_.Add(parting.key, parting.tensor, Status::kNotExplained);
      entry.mistake = "replicas_part";
      entry.text = fmt::format(
          "In {} ranks {} and {} should hold the same and do not: an "
          "all-reduce between them is missing, or an input of one rank is "
          "another.",
          side, parting.first_rank, parting.second_rank);
      if (parting.first->extent != parting.second->extent) continue;
      const Difference d =
          Differ(parting.first->Rows(), parting.second->Rows());
      entry.elements = d.elements;
      entry.different = d.different;
      entry.relative = d.relative;
    }
  }

  void AddOneSided(const Batch& batch, const Batch& other, const char* side) {
    for (const OperationKey& key : batch.order()) {
      if (!other.Of(key).empty()) continue;
      judge_.Add(key, "all", Status::kNotJudged).text =
          fmt::format("Only {} recorded it.", side);
    }
  }

  // ---- forward --------------------------------------------------------------

  void Input(const OperationKey& key, const std::string& tensor) {
    const auto pair = rows_.Of(key, tensor);
    if (!pair) return judge_.AddMissing(key, tensor);
    judge_.AddInput(key, tensor, *pair, rows_.SkippedOf(key, *pair), before_);
  }
  void Result(const OperationKey& key, const std::string& tensor) {
    const auto pair = rows_.Of(key, tensor);
    if (!pair) return judge_.AddMissing(key, tensor);
    judge_.AddResult(key, tensor, *pair, rows_.SkippedOf(key, *pair));
  }
  void State(const OperationKey& key, const std::string& tensor) {
    const auto pair = rows_.Shared(key, tensor);
    if (!pair) return judge_.AddMissing(key, tensor);
    judge_.AddState(key, tensor, *pair);
  }

  void Forward(const OperationKey& key) {
    if (key.type == "grouped_linear") MatchExperts(key);
    if (key.type == "linear") rows_.SetSource(key, "x");
    if (key.type == "dispatch") rows_.SetSource(key, "tokens");
    if (key.is_linear()) {
      Input(key, "x");
      State(key, "weight");
      State(key, "bias");
      judge_.AddWrong(key, /*backward=*/false);
      Result(key, "output");
    } else if (key.type == "router") {
      Router(key);
    } else if (key.type == "dispatch") {
      Input(key, "tokens");
      judge_.AddWrong(key, /*backward=*/false);
    } else if (key.type == "combine") {
      Input(key, "addend");
      judge_.AddWrong(key, /*backward=*/false);
      // Rows are not compared one by one, so their sums are judged as an input.
      if (!judge_.HasTold(key, "output")) Input(key, "output");
    } else {
      Input(key, "logits");
      judge_.AddWrong(key, /*backward=*/false);
      Loss(key);
    }
    before_ = NameOf(key);
  }

  void MatchExperts(const OperationKey& key) {
    const size_t lost = rows_.MatchExperts(key);
    if (lost <= rows_.flipped_slots()) return;
    TensorResult& entry =
        judge_.Add(key, "rows of experts",
                   has_router_ ? Status::kNotExplained : Status::kNotJudged);
    entry.different = static_cast<int64_t>(lost);
    if (has_router_) entry.mistake = "rows_lost";
    entry.text = fmt::format(
        "{} rows have no like on the other side, but {} were routed otherwise: "
        "tokens were dropped, came twice, or came to another expert.",
        lost, rows_.flipped_slots());
  }

  /// Counts tokens that chose other experts. Each side's choice follows from
  /// its own scores, or AddWrong told so, and scores are judged before. So the
  /// scores that changed places differ by no more than scores do.
  void Router(const OperationKey& key) {
    has_router_ = true;
    const bool has_logits = a_.Has(key, "logits") && b_.Has(key, "logits");
    Input(key, "logits");
    State(key, "bias");
    judge_.AddWrong(key, /*backward=*/false);
    has_logits ? Result(key, "scores") : Input(key, "scores");
    if (judge_.HasTold(key, "expert_ids")) return;
    const auto flipped = rows_.CompareChoices(key);
    if (!flipped) {
      judge_.Add(key, "expert_ids", Status::kNotJudged).text =
          "A side has no expert_ids, or not of all tokens.";
      return;
    }
    TensorResult& entry = judge_.Add(
        key, "expert_ids", *flipped == 0 ? Status::kEqual : Status::kExplained);
    entry.elements = static_cast<int64_t>(rows_.tokens());
    entry.different = static_cast<int64_t>(*flipped);
    if (*flipped == 0) return;
    judge_.Note(fmt::format(
        "{}, step {}: {} of {} tokens chose other experts, as their scores "
        "are near each other. Their rows do not count from there on.",
        NameOf(key), a_.step(), *flipped, rows_.tokens()));
  }

  /// Returns the mean loss over all labels of a side.
  static double LossOf(const Batch& batch, const OperationKey& key) {
    double loss = 0.0;
    double all = 0.0;
    for (const Piece& piece : batch.Of(key)) {
      const double count = CountLabels(*piece.operation);
      loss +=
          count * static_cast<double>(piece.operation->Find("loss")->values[0]);
      all += count;
    }
    return all > 0.0 ? loss / all : 0.0;
  }

  void Loss(const OperationKey& key) {
    if (judge_.HasTold(key, "loss")) return;
    const double a = LossOf(a_, key);
    const double b = LossOf(b_, key);
    TensorResult& entry =
        judge_.Add(key, "loss", a == b ? Status::kEqual : Status::kExplained);
    entry.elements = 1;
    entry.different = a == b ? 0 : 1;
    entry.relative = std::fabs(b - a) / std::max(std::fabs(a), 1e-300);
  }

  // ---- backward -------------------------------------------------------------

  void Backward(const OperationKey& key) {
    if (!key.is_linear()) return;
    if (key.type == "grouped_linear") {
      rows_.MatchExperts(key);
      rows_.MatchGradients();
    }
    auto gradient = rows_.Of(key, "grad_output");
    if (gradient) {
      scales_.Remove(key, *gradient);
      judge_.AddInput(key, "grad_output", *gradient,
                      rows_.SkippedOf(key, *gradient), before_);
      before_ = NameOf(key);
    } else {
      judge_.AddMissing(key, "grad_output");
    }
    judge_.AddWrong(key, /*backward=*/true);
    auto input = rows_.Of(key, "grad_input");
    if (input) {
      scales_.Remove(key, *input);
      judge_.AddResult(key, "grad_input", *input, rows_.SkippedOf(key, *input));
    } else {
      judge_.AddMissing(key, "grad_input");
    }
    WeightGradient(key);
  }

  void WeightGradient(const OperationKey& key) {
    if (!a_.Has(key, "grad_weight") || !b_.Has(key, "grad_weight")) {
      return judge_.AddMissing(key, "grad_weight");
    }
    Pair pair;
    pair.a.values = SumOfGradients(a_, key, [](size_t) { return 1.0; });
    pair.b.values = WeightedSum(key);
    if (!pair.HasOneExtent()) return judge_.AddMissing(key, "grad_weight");
    pair.a.type = pair.b.type = "float32";
    judge_.AddSum(key, "grad_weight", pair);
  }

  // ---- updates --------------------------------------------------------------

  /// Checks that optimizers read sums over all ranks and micro-batches. A
  /// parameter with other uses, such as a tied one, is no such sum in A, too.
  void FindMistakesOfReductions() {
    const std::vector<Reduction> of_a = ReductionsOf(a_);
    const std::vector<Reduction> of_b = ReductionsOf(b_);
    NoteGradientsWithoutUpdates(of_a, of_b);
    const double usual = UsualRatio(of_a, of_b);
    for (const Reduction& b : of_b) {
      const auto a = std::ranges::find(of_a, b.update, &Reduction::update);
      if (a == of_a.end() || !a->mistake.sentence.empty()) continue;
      if (!b.mistake.sentence.empty()) {
        mistakes_[b.update.module] = b.mistake;
        continue;
      }
      if (!scales_.is_one()) {
        if (IsMeanOfMeans(b)) mistakes_[b.update.module] = kMeanOfMeans;
        continue;
      }
      const double ratio = b.fit.factor / a->fit.factor / usual;
      // It is NaN of gradients that are zero or not finite.
      if (!(std::fabs(ratio - 1.0) > a->bound + b.bound)) continue;
      mistakes_[b.update.module] = {
          "other_factor",
          fmt::format("B's optimizer read {:.4g} times as much of the recorded "
                      "gradients as for other parameters: a reduction over "
                      "other ranks, or clipped by a norm of its own",
                      ratio)};
    }
  }

  /// Only what an optimizer read tells how parts of a gradient were added.
  void NoteGradientsWithoutUpdates(const std::vector<Reduction>& of_a,
                                   const std::vector<Reduction>& of_b) {
    const auto is_told = [](const std::vector<Reduction>& reductions,
                            const OperationKey& key) {
      return std::ranges::count(reductions, key, &Reduction::linear) > 0;
    };
    const OperationKey* first = nullptr;
    size_t count = 0;
    for (const OperationKey& key : both_) {
      const bool has_parts = a_.Of(key).size() > 1 || b_.Of(key).size() > 1;
      if (!has_parts || !a_.Has(key, "grad_weight") ||
          !b_.Has(key, "grad_weight") ||
          (is_told(of_a, key) && is_told(of_b, key))) {
        continue;
      }
      if (count++ == 0) first = &key;
    }
    if (count == 0) return;
    judge_.Note(fmt::format(
        "Step {}: nothing shows how gradients of {} modules, the first one {}, "
        "were added over ranks and micro-batches: sums, means and a missing "
        "all-reduce look alike. Record the updates.",
        a_.step(), count, NameOf(*first)));
  }

  /// Returns whether the sum with each part's own factor, which the whole batch
  /// has, is another one than the optimizer read.
  bool IsMeanOfMeans(const Reduction& reduction) const {
    const auto gradient = b_.Shared(reduction.update, "gradient");
    const Matrix<float> sum = WeightedSum(reduction.linear);
    if (!gradient || gradient->values.size() != sum.size()) return false;
    return FitFactor(sum.view(), gradient->view(), WholeOf(sum.view())).rest >
           reduction.bound;
  }

  Matrix<float> WeightedSum(const OperationKey& key) const {
    size_t calls = 0;
    for (const Piece& piece : b_.Of(key)) {
      calls = std::max(calls, piece.call + 1);
    }
    return SumOfGradients(b_, key, [&](size_t piece) {
      return scales_.Of(b_.Of(key)[piece], calls);
    });
  }

  /// Returns the factor of B's gradients that makes up for the losses' factors
  /// if any parameter has it, since some may be wrong; else the median.
  double UsualRatio(const std::vector<Reduction>& of_a,
                    const std::vector<Reduction>& of_b) const {
    std::vector<double> ratios;
    for (const Reduction& b : of_b) {
      const auto a = std::ranges::find(of_a, b.update, &Reduction::update);
      if (a == of_a.end() || !a->mistake.sentence.empty() ||
          !b.mistake.sentence.empty() || a->fit.factor == 0.0) {
        continue;
      }
      const double ratio = b.fit.factor / a->fit.factor;
      const double due = 1.0 / scales_.common();
      if (scales_.is_one() &&
          std::fabs(ratio / due - 1.0) <= a->bound + b.bound) {
        return due;
      }
      if (std::isfinite(ratio)) ratios.push_back(ratio);
    }
    if (ratios.empty()) return 1.0;
    std::ranges::sort(ratios);
    return ratios[ratios.size() / 2];
  }

  /// Returns what was found of this parameter, or of all others alike.
  Mistake MistakeOf(const OperationKey& key, const Pair& pair) const {
    const auto told = mistakes_.find(key.module);
    if (told != mistakes_.end()) return told->second;
    const double relative = Differ(pair.a.view(), pair.b.view()).relative;
    if (relative <= judge_.bound() || mistakes_.empty()) return {};
    const Mistake& first = mistakes_.begin()->second;
    const bool are_alike = std::ranges::all_of(
        mistakes_,
        [&](const auto& mistake) { return mistake.second.name == first.name; });
    return are_alike && mistakes_.size() > 1 ? first : Mistake{};
  }

  void Update(const OperationKey& key) {
    if (!a_.Has(key, "parameter_before") || !b_.Has(key, "parameter_before")) {
      judge_.Add(key, "all", Status::kNotJudged).text =
          "Operations of this type are not compared.";
      return;
    }
    if (const auto gradient = rows_.Shared(key, "gradient")) {
      // Tokens that chose other experts differ by about their own size.
      const double flips =
          std::sqrt(static_cast<double>(rows_.flipped()) /
                    static_cast<double>(std::max<size_t>(rows_.tokens(), 1)));
      judge_.AddGradient(key, *gradient, flips, MistakeOf(key, *gradient));
    } else {
      judge_.AddMissing(key, "gradient");
    }
    std::set<std::string> stems;
    for (const auto& [name, tensor] : a_.Of(key).front().operation->floats) {
      constexpr std::string_view kBefore = "_before";
      if (!name.ends_with(kBefore)) continue;
      stems.insert(name.substr(0, name.size() - kBefore.size()));
    }
    for (const std::string& stem : stems) State(key, stem + "_before");
    judge_.AddWrong(key, /*backward=*/false);
    for (const std::string& stem : stems) StateAfter(key, stem + "_after");
  }

  void StateAfter(const OperationKey& key, const std::string& name) {
    const auto pair = rows_.Shared(key, name);
    if (!pair) return judge_.AddMissing(key, name);
    judge_.AddSum(key, name, *pair);
    parameters_after_ = std::max(
        parameters_after_, Differ(pair->a.view(), pair->b.view()).relative);
  }

  /// Returns the gradient norm that all ranks have; nothing if they differ.
  static std::optional<double> NormOf(const Batch& batch) {
    const Recording& recording = batch.recording();
    std::optional<double> norm;
    for (const size_t f : recording.Of(batch.step())) {
      const auto& found = recording.files[f].grad_norm;
      if (!found || (norm && *norm != *found)) return std::nullopt;
      norm = found;
    }
    return norm;
  }

  void CompareNorms() {
    const auto a = NormOf(a_);
    const auto b = NormOf(b_);
    if (!a || !b || !(*a > 0.0)) return;
    Pair pair;
    for (const auto& [whole, norm] :
         {std::pair(&pair.a, *a), std::pair(&pair.b, *b)}) {
      whole->values.Resize(1, 1);
      whole->values.data()[0] = static_cast<float>(norm);
      whole->type = "float32";
    }
    judge_.AddInput({"step", "all parameters"}, "grad_norm", pair, {},
                    "the gradients");
  }

  const Batch& a_;
  const Batch& b_;
  Carry& carry_;
  Judge judge_;
  TokenRows rows_;
  std::vector<OperationKey> both_;
  LossScales scales_;
  bool has_router_ = false;
  std::string before_ = "the start of the step";
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
