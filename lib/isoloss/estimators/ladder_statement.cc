#include "isoloss/estimators/ladder_statement.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/estimators/predictor.h"
#include "isoloss/estimators/size_text.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

const GapCell& LargestCell(const std::vector<GapCell>& cells) {
  return *std::max_element(cells.begin(), cells.end(),
                           [](const GapCell& a, const GapCell& b) {
                             return a.size.Flops() < b.size.Flops();
                           });
}

void AddDoubts(double margin_nats, ArmStatement& statement) {
  const LadderArm& arm = statement.arm;
  const GapCell& top = LargestCell(arm.cells);
  const double mean = stats::Mean(top.gaps);
  if (mean >= margin_nats) {
    statement.doubts.push_back(fmt::format(
        "Arm {}: its mean gap at size {} is {:+.4f} nats, above the margin.",
        arm.name, top.name, mean));
  }
  for (const HeldOutRung& rung : statement.held_out) {
    if (rung.inside) continue;
    statement.doubts.push_back(fmt::format(
        "Arm {}: size {} lies outside what the {} predicts from the others.",
        arm.name, rung.cell, WordOf(kFormTexts, rung.form)));
  }
  if (statement.sizes.empty()) return;
  for (const GapFit& fit : statement.sizes.front().fits) {
    if (!fit.Misfits()) continue;
    statement.doubts.push_back(fmt::format(
        "Arm {}: the {} does not fit its measured gaps (p = {:.2g}).", arm.name,
        WordOf(kFormTexts, fit.form), *fit.fit_p));
  }
}

/// Returns the cells that tell the baseline's loss. Each cell comes from the
/// arm for which most of its seeds exist.
std::vector<GapCell> BaselineCells(const std::vector<LadderArm>& arms) {
  std::vector<GapCell> cells;
  for (const LadderArm& arm : arms) {
    for (const GapCell& cell : arm.cells) {
      const auto known = std::ranges::find(cells, cell.name, &GapCell::name);
      if (known == cells.end()) {
        cells.push_back(cell);
      } else if (known->baseline.size() < cell.baseline.size()) {
        *known = cell;
      }
    }
  }
  return cells;
}

/// Margins are a percentage of the baseline's loss, in nats.
class Margins {
 public:
  Margins(const std::vector<GapCell>& baseline, double percent)
      : percent_(percent), law_(BaselineLaw(baseline)) {
    if (!baseline.empty()) {
      largest_ = percent / 100 * stats::Mean(LargestCell(baseline).baseline);
    }
  }

  /// Returns the margin of the largest cell.
  double largest() const { return largest_; }
  /// Returns the margin at a size, from the baseline's law if that gives less
  /// than the largest cell.
  double At(const Size& size) const {
    return law_ ? std::min(largest_, percent_ / 100 * law_->At(size))
                : largest_;
  }

 private:
  double percent_;
  std::optional<LossLaw> law_;
  double largest_ = 0;
};

ArmStatement StateArm(const LadderArm& arm, const LadderQuestion& question,
                      const Margins& margins, std::vector<std::string>& notes) {
  ArmStatement statement{
      .arm = arm, .held_out = {}, .slope = std::nullopt, .sizes = {}};
  statement.doubts = arm.doubts;
  if (arm.cells.size() >= 2) {
    statement.slope = GapSlope(arm.cells, question.prediction);
  }
  if (arm.cells.size() < kCellsOfALaw) {
    notes.push_back(fmt::format(
        "Arm {} has {} sizes, but a law takes {}: nothing is predicted of it.",
        arm.name, arm.cells.size(), kCellsOfALaw));
    return statement;
  }
  for (const Form form : kForms) {
    if (const auto rung =
            PredictTopRung(arm.cells, form, question.prediction)) {
      statement.held_out.push_back(*rung);
    }
  }
  for (const Size& size : question.sizes) {
    statement.sizes.push_back(StateSize(arm.cells, SizeText(size), size,
                                        margins.At(size), question.prediction));
  }
  AddDoubts(margins.largest(), statement);
  return statement;
}

/// Returns whether the control's gap lies above 0 in its largest cell. A
/// ladder that does not see this gap sees nothing.
bool SeesControl(const LadderArm& control, const LadderQuestion& question) {
  if (control.cells.empty()) return false;
  const GapInterval gap =
      MeasuredGap(LargestCell(control.cells), question.prediction.confidence);
  return gap.lower > 0;
}

/// Makes an arm with a doubt safe at no size.
void Withdraw(ArmStatement& arm) {
  if (arm.doubts.empty()) return;
  for (SizeStatement& size : arm.sizes) {
    if (size.verdict == ScaleVerdict::kSafe) {
      size.verdict = ScaleVerdict::kInconclusive;
    }
  }
}

}  // namespace

LadderStatement StateLadder(const std::string& experiment,
                            const std::string& baseline,
                            const std::vector<LadderArm>& arms,
                            const LadderQuestion& question) {
  if (!(question.margin_percent > 0 && question.margin_percent < 100)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: the margin is {} %, but it must be above 0 and below "
               "100.",
               question.margin_percent);
  }
  LadderStatement statement{.experiment = experiment,
                            .baseline = baseline,
                            .question = question,
                            .arms = {},
                            .notes = {}};
  const Margins margins(BaselineCells(arms), question.margin_percent);
  statement.margin_nats = margins.largest();
  std::vector<std::string> unseen;
  for (const LadderArm& arm : arms) {
    statement.arms.push_back(StateArm(arm, question, margins, statement.notes));
    if (arm.role == ArmRole::kControl && !SeesControl(arm, question)) {
      unseen.push_back(fmt::format(
          "The control {} is not told apart from {} at the largest size: this "
          "ladder may see nothing.",
          arm.name, baseline));
    }
  }
  for (ArmStatement& arm : statement.arms) {
    if (arm.arm.role == ArmRole::kCandidate) {
      arm.doubts.insert(arm.doubts.end(), unseen.begin(), unseen.end());
    }
    Withdraw(arm);
  }
  return statement;
}

}  // namespace isoloss::estimators
