// Watching a run while it trains: when a stream of batch means may be called
// bad, looking after every one of them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace isoloss::stats {

/// Page's cumulative sums S = max(0, S + z - slack) of standardised values, and
/// of -z unless one-sided. They find a jump soon after it happens, which a test
/// of the mean over the whole run dilutes.
///
/// Of independent standard normal values the two-sided sums with slack 0.5
/// exceed 4 once in 168 values on average, and 5 once in 465. The limit is to
/// be chosen on an ensemble of null runs: the value() they never reach.
/// Source   Page, Biometrika 41 (1954), 100-115; run lengths: Montgomery,
///          Introduction to Statistical Quality Control, 6th ed., table 9.3.
class Cusum {
 public:
  explicit Cusum(bool one_sided, double slack = 0.5)
      : one_sided_(one_sided), slack_(slack) {}

  /// Special  a z that is not a number makes value() infinite for good.
  void Add(double z);
  /// The larger of the two sums.
  double value() const { return upper_ > lower_ ? upper_ : lower_; }

 private:
  bool one_sided_;
  double slack_;
  double upper_ = 0;
  double lower_ = 0;
};

struct SequentialOptions {
  /// A true mean within [-margin, margin] is of no concern. In the unit of the
  /// batch means; > 0.
  double margin = 0;
  /// Probability of ever aborting a run whose mean lies within the margin, for
  /// the e-process or the confidence sequence; in (0, 0.5).
  double alpha = 0.01;
  /// Only a mean above +margin is of concern.
  bool one_sided = false;
  /// Standard deviation of a batch mean about the run's mean, known from a null
  /// ensemble; > 0. Without it there is no e-process and no CUSUM.
  std::optional<double> sd = std::nullopt;
  /// What z is measured from in the CUSUM: the mean of a null run.
  double null_mean = 0;
  /// Abort when the CUSUM exceeds this; > 0, needs sd. It has a false-alarm
  /// rate of its own, on top of alpha.
  std::optional<double> cusum_limit = std::nullopt;
  /// Number of batches for which the mixtures are tuned: power is best and the
  /// confidence sequence narrowest there; >= 1.
  double tuned_for = 20;
  /// The confidence sequence is not looked at before; >= 2.
  int64_t first_look = 20;
};

enum class Alarm {
  kNone,
  kNotFinite,           ///< a batch mean was NaN or infinite
  kEProcess,            ///< e-value at or above 1 / alpha
  kConfidenceSequence,  ///< spread unknown, and the interval is beyond +-margin
  kCusum,               ///< CUSUM above its limit
};

struct SequentialState {
  int64_t batches = 0;
  Alarm alarm = Alarm::kNone;
  /// Logarithm of the e-value; empty if sd is unknown.
  std::optional<double> log_e;
  double cusum = 0;
  /// Asymptotic confidence sequence of level 1 - alpha; infinite before
  /// first_look.
  double lower = -std::numeric_limits<double>::infinity();
  double upper = std::numeric_limits<double>::infinity();
};

/// Decides after each batch mean whether to abort. It never accepts: silence
/// means "not shown to be bad so far". The first alarm stands.
///
/// e-process (sd known). For H0 mean <= m, the likelihood ratios
///     exp(lambda (S_n - n m) - n lambda^2 sd^2 / 2),   S_n the sum so far,
/// are mixed over a half-normal lambda > 0 of scale rho / sd:
///     e = 2 Phi(y) exp(y^2 / 2) / sqrt(1 + n rho^2),
///     y = (S_n - n m) / sd / sqrt(n + 1 / rho^2).
/// For H0 |mean| <= m the e-values of both sides are averaged. Not asymptotic:
/// P(e >= 1 / alpha at any time) <= alpha (Ville's inequality), for batch means
/// that are independent and normal, or sub-Gaussian of parameter sd. A spread
/// or a correlation between batches beyond `sd` voids it: take batches long
/// enough to be nearly white.
///
/// Confidence sequence (sd unknown: it raises the alarm; else reported only).
///     mean -+ s sqrt((2 (n rho^2 + 1) / (n rho)^2) log(sqrt(n rho^2 + 1)
///             / alpha)),   s the sample standard deviation.
/// ASYMPTOTIC: coverage at all n >= first_look together tends to 1 - alpha as
/// first_look grows; it holds for no finite sample, because s is estimated.
/// Share of normal streams of 200 batches whose mean is ever missed, either
/// side: 0.037 for alpha 0.05 and 0.011 for 0.01 with first_look 20, but 0.057
/// and 0.020 with first_look 10 (sequential_coverage_test).
///
/// rho^2 = (-2 log alpha + log(1 - 2 log alpha)) / tuned_for.
/// Source   Howard, Ramdas, McAuliffe, Sekhon, Ann. Stat. 49 (2021), 1055-1080
///          (one-sided normal mixture); Waudby-Smith, Arbour, Sinha, Kennedy,
///          Ramdas, arXiv 2103.06476, theorem 2.2 and appendix B.2.
class SequentialMonitor {
 public:
  /// Errors   ConfigError if an option is out of its range.
  explicit SequentialMonitor(const SequentialOptions& options);

  /// Special  a batch mean that is not finite raises kNotFinite at once.
  const SequentialState& Add(double batch_mean);
  const SequentialState& state() const { return state_; }

 private:
  double LogE() const;
  void UpdateConfidenceSequence();
  Alarm Judge() const;

  SequentialOptions options_;
  double rho_squared_;
  Cusum cusum_;
  SequentialState state_;
  // Welford's running mean and sum of squared deviations.
  double mean_ = 0;
  double squares_ = 0;
};

}  // namespace isoloss::stats
