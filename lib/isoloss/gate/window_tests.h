// Tests at level L5 whether the ends of two arms' trainings are equivalent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/token_difference.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/policy.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/equivalence.h"

namespace isoloss::gate {

/// Holds the spread of final windows between seeds, from an ensemble of good
/// pairs.
struct KnownSpread {
  double sd_percent = 0;
  int64_t members = 0;
  std::string source;
};

/// Decides whether the runs of one pairing are equivalent. `evidence`, `window`
/// and `policy` must outlive it.
class WindowTests {
 public:
  WindowTests(const Evidence& evidence, const compare::FinalWindow& window,
              const Policy& policy);

  const compare::TokenSlope& slope() const { return slope_; }
  /// Returns the percentage that the digits of the logs hide.
  double resolution() const { return resolution_; }
  /// If this look has no alpha left, the options are at the policy's alpha, for
  /// figures on the tests.
  stats::EquivalenceOptions options() const;
  /// An ensemble replaces the spread that one pair can't show.
  bool borrows() const {
    return spread_.has_value() && window_.seeds.size() == 1;
  }

  /// Whether there are as many pairs as the policy asks for, or an ensemble
  /// that stands for them.
  bool HasSpread() const;

  Check OfWindow() const;

  /// Looks at the last steps, in which a gap may open that the window's mean
  /// hides. Few steps have much noise, so the check passes if the mean
  /// difference lies within the margin and its interval within twice the
  /// margin. A gap of two margins or more thus passes with probability alpha
  /// at most. An interval that lies beyond the margin FAILs. No PASS has an end
  /// of the last steps whose interval (alpha shared by all ends) lies beyond
  /// the margin, or a single seed (LoneSeed).
  Check OfLastSteps() const;

  /// Requires that there is a held-out loss.
  Check OfHeldOut() const;

  /// Allows for harm of up to four margins that only few seeds have. Let four
  /// margins of harm in one seed of twelve be what brings the mean to the
  /// margin. Then n pairs hold no harmed seed with probability u = (11/12)^n,
  /// and their mean is 1 - 4/12 margins. The check passes if a test at level
  /// alpha / u shows a smaller mean. So such a recipe passes unseen with
  /// probability alpha. With u <= alpha there is nothing to allow for. The
  /// limit holds for the window and, if there are any, held-out losses.
  Check OfRareHarm() const;

 private:
  /// Holds the result of a test, with its sample and its source.
  struct Tested {
    stats::Summary summary;
    stats::EquivalenceResult result{};
    std::string about;      ///< where the differences are from
    bool borrowed = false;  ///< the spread is that of other pairs
  };

  Check NewCheck(const char* name, const char* quantity) const;
  /// Runs one equivalence test; differences are in percent.
  /// `spread` is that of other pairs; null: these pairs show theirs.
  Check OfDifferences(Check check, const std::vector<double>& percent,
                      const std::string& scope,
                      const KnownSpread* spread) const;
  /// Tests on the scale of tokens. The interval is Fieller's, which includes
  /// the uncertainty of the slope.
  Check OfTokens(Check check, const std::vector<double>& gaps_nats,
                 const std::string& scope) const;
  /// Returns the token difference if each gap were larger by `by` nats.
  compare::TokenDifference Shifted(std::vector<double> gaps_nats,
                                   double by) const;
  /// Widens the interval by the amount that the logs' digits hide, because the
  /// mean may be off by as much.
  void Widen(stats::EquivalenceResult& result) const;
  Check Decided(Check check, const Tested& tested) const;
  /// Returns the interval of the mean over an end of the last steps.
  stats::EquivalenceResult TestEnd(size_t end) const;
  /// Turns a PASS of the last steps into an open check if it does not hold for
  /// all of their ends.
  void LookAtEnds(Check& check) const;
  /// Does the same if one seed of three or more is further off than two
  /// margins and chance. Chance is a t quantile (alpha shared by the seeds) of
  /// the spread, as the median shows it: one seed does not move it.
  void LookAtSeeds(Check& check) const;

  const compare::FinalWindow& window_;
  const Policy& policy_;
  const Looks* looks_;
  const double alpha_;  ///< nominal, of this look; 0: none is left
  const std::string where_;
  const compare::TokenSlope slope_;
  const bool foreign_;
  const double resolution_;   ///< of the logs' digits, percent
  const double hidden_nats_;  ///< the same of the smallest loss
  const std::optional<KnownSpread> spread_;
  const std::optional<KnownSpread> spread_of_last_;  ///< of the last steps
  std::vector<std::optional<KnownSpread>> spreads_of_ends_;
};

}  // namespace isoloss::gate
