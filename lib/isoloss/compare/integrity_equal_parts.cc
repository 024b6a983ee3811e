// Checks for level L0 that no part of one run is in another one, so that no
// column was copied from one log into another.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

/// Runs that have parted stay apart, because their weights differ. Losses are
/// equal again if they are nearer by this factor, or as near as the digits
/// tell.
constexpr double kNearer = 1e-4;
/// Below this share of the loss, rounding may hide that weights differ.
constexpr double kParted = 1e-6;
/// Coarser digits are equal too often.
constexpr double kCoarsest = 1e-4;

/// Returns the share by which two values differ.
double ApartOf(double a, double b) {
  return a == b ? 0 : std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
}

/// Two columns are compared row by row. `half_units` is half a unit of the last
/// digit of both, added.
struct TwoColumns {
  std::span<const double> a;
  std::span<const double> b;
  double half_units = 0;

  size_t rows() const { return std::min(a.size(), b.size()); }
  double apart(size_t row) const { return ApartOf(a[row], b[row]); }
  double digits(size_t row) const { return half_units / std::fabs(a[row]); }
};

double HalfUnits(const runlog::RunLog& a, const runlog::RunLog& b) {
  constexpr double kFp32 = 0x1p-23;  // for formats that print no digits
  const auto of = [](const runlog::RunLog& log) {
    return std::max(log.provenance.origin.loss_half_unit,
                    log.told.loss_step / 2);
  };
  const bool alike = a.provenance.origin.format == b.provenance.origin.format ||
                     a.steps.loss_nats.empty();
  return of(a) + of(b) + (alike ? 0 : kFp32 * a.steps.loss_nats.front());
}

/// In these rows, two columns are equal again.
struct EqualRows {
  size_t begin = 0;
  size_t count = 0;
};

/// Returns whether a stretch of `fewest` rows may be equal. Every such stretch
/// has one of the rows that are looked at.
bool MayBeEqual(const TwoColumns& columns, size_t fewest) {
  for (size_t i = fewest - 1; i < columns.rows(); i += fewest) {
    if (columns.apart(i) <= std::max(kNearer, columns.digits(i))) return true;
  }
  return false;
}

/// Returns the longest stretch of equal rows that chance does not explain. It
/// has at least a tenth of all rows, half of what is judged as the end.
/// `parted` is the known distance of the runs; 0: the rows before the stretch
/// tell it.
EqualRows EqualAgain(const TwoColumns& columns, double parted) {
  constexpr double kChance = 1e-6;  // a stretch may begin anywhere
  const size_t fewest = (columns.rows() + 9) / 10;
  EqualRows longest;
  if (fewest == 0 || !MayBeEqual(columns, fewest)) return longest;
  EqualRows now;
  double sum = 0;
  size_t apart_rows = 0;
  size_t moves = 0;  // a value that stays is no trace of a run
  double chance = 1;
  for (size_t i = 0; i < columns.rows(); ++i) {
    const double apart = columns.apart(i);
    const double before = parted > 0 || apart_rows == 0
                              ? parted
                              : sum / static_cast<double>(apart_rows);
    const double near = std::max(kNearer * before, columns.digits(i));
    if (!(before > kParted && apart <= near && columns.digits(i) < kCoarsest)) {
      now.count = moves = 0;
      chance = 1;
      if (!(apart > 0) || !std::isfinite(apart)) continue;
      sum += apart;
      ++apart_rows;
      continue;
    }
    if (now.count++ == 0) now.begin = i;
    moves += i > 0 && columns.a[i] != columns.a[i - 1] ? 1 : 0;
    chance *= std::min(1.0, near / before);
    if (now.count >= std::max(fewest, longest.count + 1) &&
        2 * moves >= now.count && chance < kChance) {
      longest = now;
    }
  }
  return longest;
}

/// Returns the mean distance between the losses of two runs over the last
/// `last` steps. Only losses that differ count.
double MeanApart(const TwoColumns& losses, size_t last) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = losses.rows() - std::min(last, losses.rows());
       i < losses.rows(); ++i) {
    const double apart = losses.apart(i);
    if (!(apart > 0) || !std::isfinite(apart)) continue;
    sum += apart;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

TwoColumns LossesOf(const Run& a, const Run& b) {
  return {a.log.steps.loss_nats, b.log.steps.loss_nats,
          HalfUnits(a.log, b.log)};
}

}  // namespace

bool ReportEqualParts(const Run& one, const Run& other, Findings& findings) {
  const std::string& weights = one.log.provenance.final_weights_digest;
  if (!weights.empty() && !IsCopy(one.log.steps, other.log.steps) &&
      weights == other.log.provenance.final_weights_digest) {
    Report(findings, Severity::kIncomparable,
           "{}: its final weights have the digest {} of {}, but their losses "
           "differ, and no two trainings end with the same weights. One of the "
           "logs was edited: run it again.",
           Label(other), weights, Label(one));
    return true;
  }
  const auto& step = one.log.steps.step;
  if (step != other.log.steps.step) return false;
  const auto report = [&](const char* what, const EqualRows& rows) {
    if (rows.count == 0 || rows.begin + rows.count > step.size()) return false;
    Report(findings, Severity::kUnverified,
           "{}: at {} steps, {} to {}, its {} is that of {}, but runs that "
           "have parted do not meet again. A part of one log is in the other: "
           "give each run's own log.",
           Label(other), rows.count, step[rows.begin],
           step[rows.begin + rows.count - 1], what, Label(one));
    return true;
  };
  const TwoColumns losses = LossesOf(one, other);
  if (report("loss", EqualAgain(losses, 0))) return true;
  // Some programs log a norm that is equal in all runs.
  if (one.log.provenance.seed != other.log.provenance.seed ||
      !one.log.provenance.Knows(runlog::Fact::kRecording) ||
      !other.log.provenance.Knows(runlog::Fact::kRecording)) {
    return false;
  }
  const TwoColumns norms = {
      one.log.steps.grad_norm, other.log.steps.grad_norm,
      one.log.told.grad_norm_half_unit + other.log.told.grad_norm_half_unit};
  const double parted = MeanApart(losses, losses.rows());
  return parted > 0 && report("gradient norm", EqualAgain(norms, parted));
}

void ReportEqualHeldOut(const Pairing& pairing, Findings& findings) {
  constexpr double kFewestChances = 1e-3;
  constexpr double kNearest = 1e-6;  // one value may be near by chance
  double expected = 0;  // pairs whose last held-out losses chance makes equal
  std::vector<const SeedPair*> equal;
  for (const SeedPair& pair : pairing.pairs) {
    const auto& a = pair.baseline->log.eval;
    const auto& b = pair.candidate->log.eval;
    const TwoColumns losses = LossesOf(*pair.baseline, *pair.candidate);
    const double parted = MeanApart(losses, (losses.rows() + 4) / 5);
    if (a.step.empty() || a.step != b.step || a.step.back() == 0 ||
        a.loss_nats.size() != a.step.size() ||
        b.loss_nats.size() != b.step.size() || !(parted > kParted)) {
      continue;
    }
    const TwoColumns held_out = {a.loss_nats, b.loss_nats, losses.half_units};
    const size_t last = held_out.rows() - 1;
    const double near = std::max(kNearest * parted, held_out.digits(last));
    expected += std::min(1.0, near / parted);
    if (held_out.apart(last) <= near) equal.push_back(&pair);
  }
  if (equal.empty() || !(std::pow(expected, static_cast<double>(equal.size())) <
                         kFewestChances)) {
    return;
  }
  const SeedPair& pair = *equal.front();
  Report(findings, Severity::kUnverified,
         "{}: its last held-out loss is that of {} in all digits with {} of "
         "{} seeds, but their training losses differ. A part of one log is in "
         "the other: give each run's own log.",
         Label(*pair.candidate), Label(*pair.baseline), equal.size(),
         pairing.pairs.size());
}

}  // namespace isoloss::compare
