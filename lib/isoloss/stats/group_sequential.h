// Testing the mean of a growing sample several times with one error
// probability.
#pragma once

#include <cstdint>
#include <vector>

namespace isoloss::stats {

/// Which part of alpha the looks up to a share t of the largest sample may
/// spend together.
enum class Spending {
  /// alpha ln(1 + (e - 1) t): nearly alike at all looks, so it decides early.
  kPocock,
  /// 2 - 2 Phi(z_{1-alpha/2} / sqrt(t)): next to nothing at first, so that the
  /// last look is nearly a test at alpha.
  kOBrienFleming,
};

/// Error spent when `share` of the largest sample was seen; alpha itself from a
/// share of 1 on.
/// Errors   ConfigError unless alpha is in (0, 0.5) and share is positive.
/// Source   Lan, DeMets, Biometrika 70 (1983), 659-663.
double SpentAlpha(Spending spending, double alpha, double share);

/// Nominal levels of one-sided t tests at several looks, such that the
/// probability that any of them rejects, when the true mean is the one that is
/// tested, is what was spent: alpha at most. A look need not be planned: it
/// spends what the spending function allows up to its share beyond what the
/// looks before it had. When looks are taken must not depend on the data.
///
/// Exact for independent normal values of any variance, also of two. A t
/// statistic of n values is sqrt(n - 1) cot(theta), theta the angle between the
/// values, as a vector, and (1, ..., 1). That vector's length says nothing of
/// its direction, so that the angles at successive looks are a Markov chain:
/// with m more values, at an angle omega of their own,
///     sqrt(n + m) cos(theta') = sqrt(n) cos(theta) cos(beta)
///                             + sqrt(m) cos(omega) sin(beta),
/// sin(beta)^2 ~ Beta(m / 2, n / 2) and density sin(omega)^(m - 2). The
/// probability of each small range of angles that no look stopped is carried
/// from look to look; levels have a relative error below 0.005
/// (group_sequential_test). Levels of tests with known variance, as tables of
/// other programs have them, would reject too often: {3, 4, 5, 6} pairs with
/// alpha 0.05 in 5.7 % of samples.
/// Source   Jennison, Turnbull, Biometrika 78 (1991), 133-141, and Group
///          Sequential Methods with Applications to Clinical Trials (2000),
///          chapters 7 and 19; recursion: Armitage, McPherson, Rowe, J. R.
///          Stat. Soc. A 132 (1969), 235-244.
class LookLevels {
 public:
  /// Errors   ConfigError unless alpha is in (0, 0.5) and largest >= 1.
  LookLevels(Spending spending, double alpha, int64_t largest);

  /// The level of a t test of `count` values at the next look. If it is the
  /// first one, that is all that is spent: alpha from `largest` values on.
  /// Special  0, at which nothing rejects, if less than 1e-12 may be spent. One
  ///          value has no t test, but another one may be made of it: what that
  ///          spends is lost to later looks, which take it for independent.
  /// Errors   ConfigError unless counts ascend from 1 on.
  double Next(int64_t count);

  /// Error that the looks so far have spent together.
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
  // Ranges of angles that no look stopped: their middles and probabilities.
  std::vector<double> angles_;
  std::vector<double> masses_;
};

}  // namespace isoloss::stats
