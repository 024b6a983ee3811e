#include "qualification/kill_matrix.h"

#include <algorithm>

#include "isoloss/stats/binomial_interval.h"

namespace isoloss::qualification {
namespace {

bool StopsAJob(gate::Outcome outcome) {
  return outcome >= gate::Outcome::kFail;
}

/// 95 %, exact.
Rate MakeRate(int64_t count, int64_t of) {
  if (of == 0) return {};
  const stats::BinomialInterval both = stats::ClopperPearson(count, of, 0.95);
  return {.count = count,
          .of = of,
          .lower = both.lower,
          .upper = both.upper,
          .upper_one_sided = stats::BinomialUpperBound(count, of, 0.95)};
}

/// Bugs for which `caught` holds.
template <typename Predicate>
Rate RateOfBugs(const std::vector<KillRow>& rows, const Predicate& caught) {
  int64_t count = 0;
  int64_t of = 0;
  for (const KillRow& row : rows) {
    if (row.kind != Class::kBug || row.cells.empty()) continue;
    ++of;
    if (caught(row)) ++count;
  }
  return MakeRate(count, of);
}

/// In every seed.
template <typename Predicate>
Rate RateOfBugCells(const std::vector<KillRow>& rows, const Predicate& caught) {
  return RateOfBugs(rows, [&](const KillRow& row) {
    return std::all_of(row.cells.begin(), row.cells.end(), caught);
  });
}

template <typename Predicate>
Rate RateOfBenign(const KillMatrix& matrix, const Predicate& alarm) {
  return MakeRate(
      std::count_if(matrix.benign.begin(), matrix.benign.end(), alarm),
      static_cast<int64_t>(matrix.benign.size()));
}

}  // namespace

bool KillCell::Caught() const { return StopsAJob(verdict); }

bool KillCell::CaughtBy(size_t level) const {
  return level < levels.size() && levels[level] && StopsAJob(*levels[level]);
}

bool KillRow::Caught() const {
  return !cells.empty() &&
         std::all_of(cells.begin(), cells.end(),
                     [](const KillCell& cell) { return cell.Caught(); });
}

Rate KillMatrix::Score() const {
  return RateOfBugs(rows, [](const KillRow& row) { return row.Caught(); });
}

Rate KillMatrix::ScoreOfLevel(size_t level) const {
  return RateOfBugCells(
      rows, [&](const KillCell& cell) { return cell.CaughtBy(level); });
}

Rate KillMatrix::ScoreOfPeer(size_t peer) const {
  return RateOfBugCells(
      rows, [&](const KillCell& cell) { return !cell.peer_accepts.at(peer); });
}

Rate KillMatrix::ScoreOfMlperf() const {
  return RateOfBugs(rows,
                    [](const KillRow& row) { return !row.mlperf_accepts; });
}

Rate KillMatrix::FalseAlarms() const {
  // One pair never shows equivalence.
  const auto alarm =
      question == gate::QuestionName(compare::Question::kPrecision)
          ? gate::Outcome::kFail
          : gate::Outcome::kInconclusive;
  return RateOfBenign(
      *this, [alarm](const KillCell& cell) { return cell.verdict >= alarm; });
}

Rate KillMatrix::FalseAlarmsOfLevel(size_t level) const {
  return RateOfBenign(
      *this, [&](const KillCell& cell) { return cell.CaughtBy(level); });
}

Rate KillMatrix::FalseAlarmsOfPeer(size_t peer) const {
  return RateOfBenign(
      *this, [&](const KillCell& cell) { return !cell.peer_accepts.at(peer); });
}

}  // namespace isoloss::qualification
