#include "isoloss/gate/trajectory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/good_runs.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/runlog/shared_columns.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

using runlog::StepColumns;
using Numbers = std::vector<double>;

constexpr size_t kTenths = 10;
// Where the loss falls fast, a run that slightly leads or lags differs much. A
// shift by a fiftieth of a part is harmless; one by a tenth of a part is gross.
constexpr double kShift = 0.02;
constexpr double kGrossShift = 0.1;
// The median difference over all parts shows how far chance drives one pair of
// runs: up to six medians. In a normal distribution that is four sd.
constexpr double kMedians = 6;
// With several seeds the median is that of all parts of all seeds. Runs
// wander, and among more runs the furthest one goes further.
constexpr double kSeedMedians = 8;
// Good runs never differ by this number of margins.
constexpr double kHardMargins = 20;
// With a probability of 6e-4 chance moves the mean of any of ten parts by more
// than this number of standard errors.
constexpr double kErrors = 4;
// A loss above this multiple of the baseline's largest loss is no bad batch.
constexpr double kSpike = 4;
// Up to a fifth of the steps of a tenth may be bad batches of one run.
constexpr size_t kDropped = 5;
// A part of fewer steps can't spare any.
constexpr size_t kFewestSteps = 4;
// The median over at least this number of seeds shows how far chance drives
// one of them in this part.
constexpr size_t kFewestPeers = 3;

/// A part has the compared steps at places [first, last).
struct Part {
  size_t first = 0;
  size_t last = 0;
};

std::vector<Part> PartsOf(size_t steps) {
  const size_t parts = std::clamp<size_t>(steps / kFewestSteps, 1, kTenths);
  std::vector<Part> result;
  for (size_t i = 0; i < parts; ++i) {
    result.push_back({i * steps / parts, (i + 1) * steps / parts});
  }
  return result;
}

/// Returns 100 (L - L_r) / L_r at `steps`; empty if a run lacks one.
std::optional<Numbers> PercentAt(const std::vector<int64_t>& steps,
                                 const StepColumns& run,
                                 const StepColumns& reference) {
  Numbers percent;
  size_t next = 0;
  for (const runlog::SharedRow& at :
       runlog::MatchRows(run.step, reference.step)) {
    if (next == steps.size()) break;
    if (at.step != steps[next]) continue;
    percent.push_back(compare::PercentDifference(run.loss_nats[at.a],
                                                 reference.loss_nats[at.b]));
    ++next;
  }
  if (next != steps.size()) return std::nullopt;
  return percent;
}

double MeanIn(const Numbers& values, Part part) {
  return stats::Mean(
      std::span(values).subspan(part.first, part.last - part.first));
}

/// Returns the mean without the steps that lie furthest from the median: a
/// fifth of them, and at least one. A bad batch of one run says nothing about
/// the course of training.
double CalmMean(const Numbers& values, Part part) {
  Numbers all(values.begin() + static_cast<std::ptrdiff_t>(part.first),
              values.begin() + static_cast<std::ptrdiff_t>(part.last));
  if (all.size() < kFewestSteps) return stats::Mean(all);
  std::ranges::sort(all);
  const double median = all[all.size() / 2];
  std::ranges::sort(all, {},
                    [median](double x) { return std::fabs(x - median); });
  all.resize(all.size() - std::max<size_t>(1, all.size() / kDropped));
  return stats::Mean(all);
}

/// Returns the standard deviation of single steps, without shifts that last.
/// It follows from the median difference of neighbours, which has the noise of
/// two steps. A jump within the part adds only one such difference.
double StepNoise(const Numbers& values, Part part) {
  constexpr double kMedianOfNormal = 0.6745;
  Numbers moves;
  for (size_t i = part.first + 1; i < part.last; ++i) {
    moves.push_back(std::fabs(values[i] - values[i - 1]));
  }
  if (moves.empty()) return 0;
  std::ranges::sort(moves);
  return moves[moves.size() / 2] / (kMedianOfNormal * std::numbers::sqrt2);
}

/// Says how far good runs spread, from an ensemble of them.
struct GoodRuns {
  std::vector<Numbers> percent;  ///< of each, by step
  /// Good runs of another program and the judged runs are measured from this
  /// good run.
  const StepColumns* reference = nullptr;
  std::string source;
};

/// Reads the ensemble that may judge these runs. Empty if there is none, or if
/// it lacks steps.
std::optional<GoodRuns> GoodRunsOf(const Evidence& evidence,
                                   const std::vector<int64_t>& steps,
                                   const Policy& policy) {
  const compare::Pairing& pairing = *evidence.pairing;
  const bool regression = policy.question == compare::Question::kRegression;
  const NullEnsemble* given = regression ? evidence.benign : evidence.seeds;
  if (given == nullptr ||
      (regression && pairing.Knows(runlog::Fact::kExperiment)) ||
      (regression &&
       given->ensemble.provenance.Knows(runlog::Fact::kExperiment)) ||
      !Mismatches(*given,
                  regression ? runlog::EnsembleKind::kBenign
                             : runlog::EnsembleKind::kSeeds,
                  pairing)
           .empty()) {
    return std::nullopt;
  }
  GoodRuns good;
  good.source = Label(*given);
  if (regression && !given->ensemble.members.empty()) {
    good.reference = &given->ensemble.members.front().reference_steps;
  }
  if (regression) good.percent.emplace_back(steps.size(), 0.);
  for (const auto* member : UsableMembers(*given, pairing)) {
    auto percent = PercentAt(steps, member->steps, member->reference_steps);
    if (!percent) return std::nullopt;
    good.percent.push_back(std::move(*percent));
  }
  const size_t fewest =
      regression ? kFewestGoodRuns : static_cast<size_t>(policy.min_members);
  if (good.percent.size() < fewest) return std::nullopt;
  return good;
}

/// Holds the figures of a tenth of the training.
struct Tenth {
  Part part;
  stats::Summary seeds;  ///< differences in percent
  double half = std::numeric_limits<double>::infinity();  ///< of the interval
  Numbers calm;     ///< CalmMean of each seed
  Numbers noise;    ///< its standard error, by the noise of single steps
  double fall = 0;  ///< of the baseline's loss to a neighbour, percent

  /// Returns the standard error of the mean, from the seeds in this part. It
  /// is 0 for one seed, which has no spread.
  double Error() const {
    return seeds.count > 1
               ? seeds.sd / std::sqrt(static_cast<double>(seeds.count))
               : 0;
  }
  /// Returns the noise of one seed as the root mean square over all seeds.
  double Noise() const {
    double squares = 0;
    for (const double of : noise) squares += of * of;
    return std::sqrt(squares / static_cast<double>(noise.size()));
  }
};

/// Returns the median of |values|, and the lower one of an even number. NaN
/// counts as infinite.
double MedianSize(Numbers values) {
  for (double& value : values) {
    value = std::isnan(value) ? std::numeric_limits<double>::infinity()
                              : std::fabs(value);
  }
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

class Trajectory {
 public:
  Trajectory(const Evidence& evidence, const Policy& policy, double alpha)
      : pairing_(*evidence.pairing),
        policy_(policy),
        steps_(pairing_.pairs[0].baseline->log.steps.step),
        resolution_(compare::WrittenPercent(pairing_)),
        good_(GoodRunsOf(evidence, steps_, policy)) {
    const auto parts = PartsOf(steps_.size());
    for (const Part& part : parts) {
      tenths_.push_back(
          TenthOf(part, alpha / static_cast<double>(parts.size())));
    }
    AddFalls();
    AddChance(alpha);
  }

  Check Judge() const {
    if (const auto spike = Spike()) return *spike;
    const Tenth* worst = &tenths_.front();
    Outcome outcome = Outcome::kPass;
    double excess = -1;
    for (const Tenth& tenth : tenths_) {
      const Outcome of = OutcomeOf(tenth);
      const double over = Size(tenth.seeds.mean) / Soft(tenth);
      if (of < outcome || (of == outcome && !(over > excess))) continue;
      outcome = of;
      excess = over;
      worst = &tenth;
    }
    if (outcome == Outcome::kPass) {
      if (const auto seed = GrossSeed()) return *seed;
    }
    return CheckOfMean(*worst, outcome);
  }

 private:
  Tenth TenthOf(Part part, double alpha) const {
    Tenth tenth;
    tenth.part = part;
    Numbers means;
    for (const compare::SeedPair& pair : pairing_.pairs) {
      const StepColumns& from = good_ && good_->reference != nullptr
                                    ? *good_->reference
                                    : pair.baseline->log.steps;
      const auto percent = PercentAt(steps_, pair.candidate->log.steps, from);
      if (!percent) continue;
      means.push_back(MeanIn(*percent, part));
      tenth.calm.push_back(CalmMean(*percent, part));
      tenth.noise.push_back(
          StepNoise(*percent, part) /
          std::sqrt(static_cast<double>(part.last - part.first)));
    }
    tenth.seeds = stats::Summarize(means);
    AddInterval(alpha / 2, tenth);
    return tenth;
  }

  void AddInterval(double alpha, Tenth& tenth) const {
    const auto n = static_cast<double>(tenth.seeds.count);
    if (!good_) {
      tenth.half =
          stats::IntervalOfMean(tenth.seeds, alpha).upper - tenth.seeds.mean;
      return;
    }
    Numbers means;
    for (const Numbers& percent : good_->percent) {
      means.push_back(MeanIn(percent, tenth.part));
    }
    const stats::Summary good = stats::Summarize(means);
    const auto g = static_cast<double>(good.count);
    const double sd =
        tenth.seeds.count > 1 ? std::max(good.sd, tenth.seeds.sd) : good.sd;
    tenth.half = stats::StudentTQuantile(1 - alpha, g - 1) * sd *
                 std::sqrt(1 / n + (good_->reference != nullptr ? 1 / g : 0));
    if (good_->reference == nullptr) return;
    tenth.seeds.mean -= good.mean;
    for (double& calm : tenth.calm) calm -= good.mean;
  }

  void AddFalls() {
    Numbers losses;
    for (const Tenth& tenth : tenths_) {
      Numbers of;
      for (const compare::SeedPair& pair : pairing_.pairs) {
        of.push_back(MeanIn(pair.baseline->log.steps.loss_nats, tenth.part));
      }
      losses.push_back(stats::Mean(of));
    }
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto to = [&](size_t other) {
        return 100 * std::fabs((losses[i] - losses[other]) / losses[i]);
      };
      if (i > 0) tenths_[i].fall = to(i - 1);
      if (i + 1 < losses.size()) {
        tenths_[i].fall = std::max(tenths_[i].fall, to(i + 1));
      }
    }
  }

  void AddChance(double alpha) {
    Numbers all;
    Numbers means;
    Numbers errors;
    for (const Tenth& tenth : tenths_) {
      all.insert(all.end(), tenth.calm.begin(), tenth.calm.end());
      means.push_back(stats::Mean(tenth.calm));
      errors.push_back(tenth.Error());
    }
    const size_t seeds = tenths_[0].calm.size();
    seed_chance_ = (seeds > 1 ? kSeedMedians : kMedians) * MedianSize(all);
    if (seeds < 2) return;
    // Runs may wander. Then all parts together tell as little as one of them.
    const double of_one_part =
        stats::StudentTQuantile(1 - alpha / 2, static_cast<double>(seeds - 1));
    const double error = MedianSize(errors);
    most_chance_ = std::max(kErrors, of_one_part) * error;
    mean_chance_ =
        std::clamp(kMedians * MedianSize(means), kErrors * error, most_chance_);
  }

  double Size(double difference) const {
    return policy_.one_sided ? difference : std::fabs(difference);
  }
  double Margins(double count) const {
    return count * policy_.margin_percent + resolution_;
  }
  /// The mean may exceed this limit only by as much as its interval or chance
  /// allows.
  double Soft(const Tenth& tenth) const {
    // A margin in tokens has no meaning on this scale.
    return policy_.InTokens() ? Hard(tenth) : Margins(1) + kShift * tenth.fall;
  }
  /// No mean and no seed may exceed this limit except by chance.
  double Gross(const Tenth& tenth) const {
    return Margins(policy_.gross_factor) + kGrossShift * tenth.fall;
  }
  double Hard(const Tenth& tenth) const {
    return Margins(kHardMargins) + kGrossShift * tenth.fall;
  }
  /// Returns the gross limit plus chance for the mean over two seeds or more.
  double GrossOfMean(const Tenth& tenth) const {
    const auto n = static_cast<double>(tenth.noise.size());
    return Gross(tenth) +
           std::max(mean_chance_, kErrors * tenth.Noise() / std::sqrt(n));
  }
  /// Returns the gross limit plus chance for one seed.
  double GrossOfSeed(const Tenth& tenth, size_t seed) const {
    const double of_peers = tenth.calm.size() < kFewestPeers
                                ? 0
                                : kSeedMedians * MedianSize(tenth.calm);
    return Gross(tenth) +
           std::max({seed_chance_, of_peers, kErrors * tenth.Noise(),
                     kErrors * tenth.noise[seed]});
  }

  bool IsOut(const Tenth& tenth) const {
    return Size(tenth.seeds.mean) - std::max(tenth.half, most_chance_) >
           Soft(tenth);
  }
  bool IsGross(const Tenth& tenth) const {
    constexpr double kSpreads = 3;  // of the mean over seeds
    return tenth.calm.size() > 1 &&
           Size(stats::Mean(tenth.calm)) > GrossOfMean(tenth) &&
           Size(tenth.seeds.mean) > kSpreads * tenth.Error();
  }

  Outcome OutcomeOf(const Tenth& tenth) const {
    if (Size(tenth.seeds.mean) - tenth.half > Hard(tenth)) {
      return Outcome::kFail;
    }
    return IsOut(tenth) || IsGross(tenth) ? OfDoubt() : Outcome::kPass;
  }
  /// A large difference under the question of precision may be due to chance
  /// or to the recipe, which is no fault.
  Outcome OfDoubt() const {
    return policy_.question == compare::Question::kRegression
               ? Outcome::kFail
               : Outcome::kInconclusive;
  }

  /// Finds the seed that lies furthest beyond its limit; empty if none does.
  std::optional<Check> GrossSeed() const {
    const Tenth* worst = nullptr;
    size_t seed = 0;
    double excess = 1;
    for (const Tenth& tenth : tenths_) {
      for (size_t i = 0; i < tenth.calm.size(); ++i) {
        const double over = Size(tenth.calm[i]) / GrossOfSeed(tenth, i);
        if (!(over > excess)) continue;
        worst = &tenth;
        seed = i;
        excess = over;
      }
    }
    if (worst == nullptr) return std::nullopt;
    Check check = CheckOf(*worst, OfDoubt(),
                          fmt::format("seed {}, ", pairing_.pairs[seed].seed));
    check.value = worst->calm[seed];
    check.limit = GrossOfSeed(*worst, seed);
    check.pairs = stats::Summarize({&worst->calm[seed], 1});
    return check;
  }

  /// Finds a step whose loss is far above any of the baseline's.
  std::optional<Check> Spike() const {
    for (const compare::SeedPair& pair : pairing_.pairs) {
      const StepColumns& candidate = pair.candidate->log.steps;
      const double most =
          kSpike * std::ranges::max(pair.baseline->log.steps.loss_nats);
      if (most <= 0) continue;  // no cross entropy
      const auto found = std::ranges::find_if(
          candidate.loss_nats, [most](double loss) { return loss > most; });
      if (found == candidate.loss_nats.end()) continue;
      const auto step =
          candidate
              .step[static_cast<size_t>(found - candidate.loss_nats.begin())];
      return Check{
          .name = "trajectory",
          .outcome = Outcome::kFail,
          .quantity = fmt::format(
              "seed {} has a loss of {:.4g} nats at step {}, more than {:g} "
              "times the largest of the baseline, {:.4g} nats",
              pair.seed, *found, step, kSpike, most / kSpike),
          .next = fmt::format("look at the run from step {} on", step)};
    }
    return std::nullopt;
  }

  /// Leaves value and limit open; `whose` is "" for the mean over seeds.
  Check CheckOf(const Tenth& tenth, Outcome outcome,
                const std::string& whose) const {
    const int64_t first = steps_[tenth.part.first];
    const int64_t last = steps_[tenth.part.last - 1];
    Check check{.name = "trajectory", .outcome = outcome, .unit = "%"};
    const std::string steps =
        whose + (first == last ? fmt::format("step {}", first)
                               : fmt::format("steps {} to {}", first, last));
    check.subject = "loss of " + steps;
    check.quantity = fmt::format("{}: {}loss difference", steps,
                                 whose.empty() ? "mean " : "");
    check.relation =
        fmt::format("{}beyond {}", outcome == Outcome::kPass ? "not " : "",
                    policy_.one_sided ? "+" : "+-");
    check.evidence = fmt::format(
        "the furthest of {} part{} of the training; the {} loss moves by "
        "{:.2g} % there, {} seed pair{}{}",
        tenths_.size(), tenths_.size() == 1 ? "" : "s",
        policy_.question == compare::Question::kRegression ? "approved"
                                                           : "baseline's",
        tenth.fall, tenth.seeds.count, tenth.seeds.count == 1 ? "" : "s",
        good_ ? ", spread of " + good_->source : "");
    if (outcome == Outcome::kPass) return check;
    check.pairs = tenth.seeds;
    check.next = fmt::format(
        "see what differs in steps {} to {}; that the ends agree does not make "
        "up for it. If the change is meant to do this, approve it as a new "
        "baseline or set a wider margin",
        first, last);
    return check;
  }

  Check CheckOfMean(const Tenth& tenth, Outcome outcome) const {
    Check check = CheckOf(tenth, outcome, "");
    check.value = tenth.seeds.mean;
    check.limit = IsOut(tenth) || outcome == Outcome::kPass
                      ? Soft(tenth)
                      : GrossOfMean(tenth);
    if (std::isfinite(tenth.half)) {
      check.lower = tenth.seeds.mean - tenth.half;
      check.upper = tenth.seeds.mean + tenth.half;
    }
    return check;
  }

  const compare::Pairing& pairing_;
  const Policy& policy_;
  const std::vector<int64_t>& steps_;
  const double resolution_;  ///< of the logs' digits, percent
  const std::optional<GoodRuns> good_;
  std::vector<Tenth> tenths_;
  // Chance may move a seed by seed_chance_ percent. It may move the mean over
  // seeds by mean_chance_ percent, from seeds and parts, and by most_chance_
  // percent at most, from seeds alone.
  double seed_chance_ = 0;
  double mean_chance_ = 0;
  double most_chance_ = 0;
};

}  // namespace

Check JudgeTrajectory(const Evidence& evidence, const Policy& policy,
                      double alpha) {
  return Trajectory(evidence, policy, alpha).Judge();
}

}  // namespace isoloss::gate
