#include "isoloss/gate/tuning.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "isoloss/compare/swept_rate.h"
#include "isoloss/compare/training_scale.h"
#include "isoloss/gate/check_titles.h"
#include "isoloss/gate/level.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/stats/rate_optimum.h"

namespace isoloss::gate {
namespace {

using runlog::RateSweep;
using stats::RateOptimum;

Check Inconclusive(const char* name, std::string quantity) {
  return {.name = name,
          .outcome = Outcome::kInconclusive,
          .quantity = std::move(quantity)};
}

/// Says what the sweep found.
std::string FoundText(const RateSweep& sweep, const RateOptimum& optimum) {
  return fmt::format(
      "the optimum of {} rates from {:g} to {:g}, {} seed{} each, lies near "
      "{:.3g}",
      sweep.rates.size(), sweep.rates.front(), sweep.rates.back(), sweep.seeds,
      sweep.seeds == 1 ? "" : "s", optimum.rate);
}

/// Says how much better the best rate is than `rate`.
std::string GainText(const RateSweep& sweep, const RateOptimum& optimum,
                     double rate) {
  const double best = sweep.held_out[optimum.best];
  const auto loss = stats::LossAtRate(sweep.rates, sweep.held_out, rate);
  const std::string factor =
      fmt::format("rate x {:.3g}", sweep.rates[optimum.best] / rate);
  if (!loss) return factor + " is the best, and the sweep has no loss at x 1";
  return fmt::format("{} is {:.1f} % better", factor, 100 * (1 - best / *loss));
}

/// Requires a rate near the best of a sweep that fits.
Check JudgeRate(const RateSweep& sweep, double rate) {
  const auto optimum = stats::FindRateOptimum(sweep.rates, sweep.held_out);
  if (!optimum) {
    return Inconclusive("tuning", "training diverged at every rate tried");
  }
  const double best = sweep.rates[optimum->best];
  Check check;
  if (!compare::IsNearRate(rate, best)) {
    check = Inconclusive(
        "tuning",
        fmt::format("learning rate {:g} is not within a factor {:g} of the "
                    "best one tried, {:g}: {}",
                    rate, compare::kNearRate, best,
                    GainText(sweep, *optimum, rate)));
    check.next = fmt::format("train with train.lr = {:.3g}", optimum->rate);
  } else if (std::string defect = compare::SweepDefect(
                 sweep.rates, sweep.held_out, sweep.seeds, *optimum);
             !defect.empty()) {
    check = Inconclusive("tuning", std::move(defect));
    check.next = "isoloss study rates";
  } else {
    check = {.name = "tuning",
             .outcome = Outcome::kPass,
             .quantity = fmt::format("learning rate {:g} is within a factor "
                                     "{:g} of the best one tried, {:g}",
                                     rate, compare::kNearRate, best)};
  }
  check.evidence = FoundText(sweep, *optimum);
  return check;
}

Check CheckRate(const runlog::Provenance& run, const RateSweep* given) {
  const std::optional<RateSweep> logged = runlog::SweepOf(run);
  const RateSweep* sweep = given != nullptr ? given
                           : logged         ? &*logged
                                            : nullptr;
  const std::optional<double> rate = runlog::RateOf(run);
  if (sweep == nullptr || !rate) {
    return Inconclusive("tuning",
                        "no sweep of learning rates is known, so nobody knows "
                        "how far the rate is from the best one");
  }
  if (sweep->configuration !=
      runlog::TuningDigest(run.experiment_text, run.corpus_digest, run.arm)) {
    return Inconclusive(
        "tuning",
        "the sweep in [tuning] was of another model, schedule, batch, text or "
        "recipe, so nobody knows how far the rate is from the best one");
  }
  return JudgeRate(*sweep, *rate);
}

/// A baseline that ends below so many bits has learnt enough.
struct Bar {
  double bits = 0;
  std::string text;  ///< with the number
};

/// Returns the bigram entropy of a text. A synthetic source may have nothing to
/// learn beyond bigrams, but its floor is known: nine tenths of the way there
/// from the unigrams are due. Empty if the log does not tell these entropies,
/// or if the floor leaves nothing to learn.
std::optional<Bar> BarOf(const Judgement& judgement) {
  constexpr double kLeft = 0.1;  // of the way
  const double floor = judgement.entropy_floor_nats;
  const double unigrams = judgement.unigram_entropy_nats;
  const auto& bigrams = judgement.precision->trained.bigram_bits;
  if (!std::isnan(floor)) {
    if (!(unigrams > floor)) return std::nullopt;
    const double bits = compare::BitsOf(floor + kLeft * (unigrams - floor));
    return Bar{bits, fmt::format("{:.3f}, nine tenths of the way from the "
                                 "source's unigrams, {:.3f}, to its floor, "
                                 "{:.3f}",
                                 bits, compare::BitsOf(unigrams),
                                 compare::BitsOf(floor))};
  }
  if (!bigrams) return std::nullopt;
  return Bar{*bigrams,
             fmt::format("the {:.3f} of the corpus' bigrams", *bigrams)};
}

/// A baseline without a bar is INCONCLUSIVE, too.
Check CheckLearnt(const Judgement& judgement) {
  const std::string& arm = judgement.baseline.arm;
  const std::optional<Bar> bar = BarOf(judgement);
  if (!bar) {
    Check check = Inconclusive(
        "learnt",
        fmt::format("nobody knows whether {} has learnt more than counts of "
                    "tokens, since its logs tell no entropy to compare with",
                    arm));
    check.next =
        "earlier programs' logs lack it, and pairs of many kinds of tokens are "
        "not counted: with require_tuning = false this only warns";
    return check;
  }
  const double bits =
      compare::BitsOf(judgement.baseline.final_loss_nats.value_or(NAN));
  const bool learnt = bits < bar->bits;
  std::string quantity =
      fmt::format("{} ends at {:.3f} bits per {}, {}below {}", arm, bits,
                  judgement.precision->trained.of_bytes ? "byte" : "token",
                  learnt ? "" : "not ", bar->text);
  if (learnt) {
    return {.name = "learnt",
            .outcome = Outcome::kPass,
            .quantity = std::move(quantity)};
  }
  return Inconclusive("learnt",
                      quantity +
                          ": a verdict says little of models that have learnt "
                          "more");
}

void Add(Check check, Judgement& judgement) {
  Entitle(LevelName(LevelId::l5_final_window), check);
  if (judgement.policy.require_tuning) {
    judgement.checks.push_back(std::move(check));
  } else if (check.outcome != Outcome::kPass) {
    if (check.name == "learnt") {
      judgement.rate_note += " It is not shown to have learnt beyond bigrams.";
    }
    judgement.warnings.push_back(check.quantity + ".");
  }
}

}  // namespace

void ApplyTuning(const Evidence& evidence, Judgement& judgement) {
  const compare::Pairing& pairing = *evidence.pairing;
  if (!judgement.precision || judgement.outcome >= Outcome::kFail) return;
  if (!pairing.Knows(runlog::Fact::kExperiment)) {
    judgement.rate_note = "Nobody knows whether its learning rate is tuned.";
    return;
  }
  if (!judgement.policy.require_tuning) {
    judgement.rate_note = "Its learning rate was not judged.";
  }
  Add(CheckRate(pairing.baseline.front()->log.provenance, evidence.sweep),
      judgement);
  Add(CheckLearnt(judgement), judgement);
  judgement.outcome = Severest(judgement.checks);
}

}  // namespace isoloss::gate
