#include "isoloss/estimators/ladder_statement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

const GapCell& LargestCell(const std::vector<GapCell>& cells) {
  return *std::ranges::max_element(
      cells, {}, [](const GapCell& cell) { return cell.size.Flops(); });
}

ScaleVerdict VerdictOf(const GapInterval& gap, double margin) {
  if (-margin < gap.lower && gap.upper < margin) return ScaleVerdict::kSafe;
  return gap.lower > margin || gap.upper < -margin
             ? ScaleVerdict::kUnsafe
             : ScaleVerdict::kInconclusive;
}

/// An arm without a gap is safe if its estimate and its reach fit into the
/// margin. Both are at most `reach` in the question's share of ladders, and
/// shrink with the root of the number of seeds.
size_t SeedsWithoutGap(const LadderArm& arm, const GapInterval& gap,
                       double margin) {
  size_t seeds = 0;
  for (const GapCell& cell : arm.cells) {
    seeds = std::max(seeds, cell.gaps.size());
  }
  const double reach = (gap.upper - gap.lower) / 2;
  const double factor = 2 * reach / margin;
  // An infinite interval takes more seeds than anybody has.
  constexpr double kMost = 1e6;
  return std::max<size_t>(
      2, static_cast<size_t>(std::min(
             kMost, std::ceil(static_cast<double>(seeds) * factor * factor))));
}

/// Returns the half of the cells that takes more operations.
std::vector<GapCell> LargerHalf(std::vector<GapCell> cells) {
  std::ranges::sort(cells, {},
                    [](const GapCell& cell) { return cell.size.Flops(); });
  cells.erase(cells.begin(),
              cells.begin() + static_cast<long>(cells.size() / 2));
  return cells;
}

SizeStatement StateSize(const LadderArm& arm, const Size& size,
                        const LadderQuestion& question) {
  const double margin = question.margin_percent;
  const GapCell& top = LargestCell(arm.cells);
  SizeStatement statement{
      .size = size,
      .gap_percent =
          LineAt(arm.cells, size.Flops()).Interval(question.confidence)};
  statement.verdict = VerdictOf(statement.gap_percent, margin);
  statement.decades_beyond = std::log10(size.Flops() / top.size.Flops());
  const double gap = MeanGap(top).value;
  if (statement.decades_beyond > 0 && std::fabs(gap) < margin) {
    statement.must_grow = (margin - gap) / statement.decades_beyond;
  }
  statement.seeds_without_gap =
      SeedsWithoutGap(arm, statement.gap_percent, margin);
  statement.others = {
      {"constant", ConstantGap(arm.cells).Interval(question.confidence)}};
  const std::vector<GapCell> half = LargerHalf(arm.cells);
  if (half.size() >= kCellsOfALine) {
    statement.others.push_back(
        {"line of the larger half",
         LineAt(half, size.Flops()).Interval(question.confidence)});
  }
  return statement;
}

void AddDoubtOfLargest(const LadderQuestion& question,
                       ArmStatement& statement) {
  const GapCell& top = LargestCell(statement.arm.cells);
  const GapInterval gap = MeanGap(top).Interval(question.confidence);
  if (VerdictOf(gap, question.margin_percent) != ScaleVerdict::kUnsafe) return;
  statement.doubts.push_back(fmt::format(
      "Arm {}: its gap at size {} is {:+.3f} %, and lies outside the margin.",
      statement.arm.name, top.name, gap.estimate));
}

std::optional<GapInterval> DifferenceOfBatch(const LadderArm& arm,
                                             double confidence) {
  if (!arm.large_batch) return std::nullopt;
  const auto twin =
      std::ranges::find(arm.cells, arm.large_batch->twin, &GapCell::name);
  if (twin == arm.cells.end()) return std::nullopt;
  return GapDifference(arm.large_batch->cell, *twin).Interval(confidence);
}

ArmStatement StateArm(const LadderArm& arm, const LadderQuestion& question,
                      std::vector<std::string>& notes) {
  ArmStatement statement{
      .arm = arm, .slope = std::nullopt, .scatter = std::nullopt, .sizes = {}};
  statement.doubts = arm.doubts;
  statement.of_batch = DifferenceOfBatch(arm, question.confidence);
  if (arm.cells.size() < kCellsOfALine) {
    notes.push_back(fmt::format(
        "Arm {} has {} sizes, but a line takes {}: nothing is predicted of it.",
        arm.name, arm.cells.size(), kCellsOfALine));
    return statement;
  }
  statement.slope = LineSlope(arm.cells).Interval(question.confidence);
  statement.scatter = ScatterOfCells(arm.cells);
  for (const Size& size : question.sizes) {
    statement.sizes.push_back(StateSize(arm, size, question));
  }
  AddDoubtOfLargest(question, statement);
  return statement;
}

/// Returns whether the control's gap lies above 0 in its largest cell. A
/// ladder that does not see this gap sees nothing.
bool SeesControl(const LadderArm& control, const LadderQuestion& question) {
  if (control.cells.empty()) return false;
  return MeanGap(LargestCell(control.cells))
             .Interval(question.confidence)
             .lower > 0;
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
  std::vector<std::string> unseen;
  for (const LadderArm& arm : arms) {
    statement.arms.push_back(StateArm(arm, question, statement.notes));
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
