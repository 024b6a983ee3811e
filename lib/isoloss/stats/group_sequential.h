// Decides on the mean of a growing sample at several looks with one error
// probability.
#pragma once

#include <cstdint>
#include <vector>

namespace isoloss::stats {

/// Decides which part of alpha the looks may spend together up to a share t of
/// the largest sample.
enum class Spending {
  /// alpha ln(1 + (e - 1) t) is nearly alike at all looks, so it decides early.
  kPocock,
  /// 2 - 2 Phi(z_{1-alpha/2} / sqrt(t)) is next to nothing at first, so that
  /// the last look is nearly a test at alpha.
  kOBrienFleming,
};

/// Returns the error that is spent after `share` of the largest sample. It is
/// alpha itself from a share of 1 on.
/// Errors   ConfigError unless alpha is in (0, 0.5) and share is positive.
/// Source   Lan, DeMets, Biometrika 70 (1983), 659-663.
double SpentAlpha(Spending spending, double alpha, double share);

/// Computes nominal levels of one-sided t tests at several looks. If the true
/// mean is the tested one, at least one look rejects with the probability that
/// was spent, at most alpha. A look need not be planned. It spends what the
/// spending function allows up to its share, less what the looks before it
/// spent. The times of looks must not depend on the data.
///
/// The levels are exact for independent normal values of any variance, and for
/// two values. A t statistic of n values is sqrt(n - 1) cot(theta), where theta
/// is the angle between the values, as a vector, and (1, ..., 1). That vector's
/// length says nothing of its direction, so the angles at successive looks are
/// a Markov chain. If m more values have the angle omega, then
///     sqrt(n + m) cos(theta') = sqrt(n) cos(theta) cos(beta)
///                             + sqrt(m) cos(omega) sin(beta).
/// Here sin(beta)^2 ~ Beta(m / 2, n / 2), and the density of omega is
/// sin(omega)^(m - 2). The probability of each small range of angles that no
/// look stopped is carried from look to look. Levels have a relative error
/// below 0.005 (group_sequential_test). Tables of other programs have levels of
/// tests with known variance. These would reject too often: {3, 4, 5, 6} pairs
/// with alpha 0.05 in 5.7 % of samples.
/// Source   Jennison, Turnbull, Biometrika 78 (1991), 133-141, and Group
///          Sequential Methods with Applications to Clinical Trials (2000),
///          chapters 7 and 19; recursion: Armitage, McPherson, Rowe, J. R.
///          Stat. Soc. A 132 (1969), 235-244.
class LookLevels {
 public:
  /// Errors   ConfigError unless alpha is in (0, 0.5) and largest >= 1.
  LookLevels(Spending spending, double alpha, int64_t largest);

  /// Returns the level of a t test of `count` values at the next look. At the
  /// first look it is all that is spent: alpha from `largest` values on.
  /// Special  0, at which nothing rejects, if less than 1e-12 may be spent. One
  ///          value has no t test, but may have another test. Later looks lose
  ///          what that test spends, since they take it for independent.
  /// Errors   ConfigError unless counts ascend from 1 on.
  double Next(int64_t count);

  /// Returns the error that the looks so far have spent together.
  double spent() const { return spent_; }

 private:
  template <typename Step>
  void FindLimit(double error, double count, const Step& step);
  template <typename Below>
  void KeepBeyond(double limit, double count, const Below& below);

  Spending spending_;
  double alpha_;
  int64_t largest_;
  int64_t count_ = 0;
  double spent_ = 0;
  double limit_ = 0;  // angle of the last look; smaller ones are rejected
  // No look stopped these ranges of angles; they have middles and
  // probabilities.
  std::vector<double> angles_;
  std::vector<double> masses_;
};

}  // namespace isoloss::stats
