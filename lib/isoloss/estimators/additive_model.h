// Estimates the harm of each quantised product to the loss, if harms add up.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// An arm quantises some products. A product is fprop, dgrad or wgrad of a
/// kind of site.
struct ArmLosses {
  std::string name;
  std::vector<size_t> products = {};
  /// Held-out loss, nats, one for each seed. It is NaN if the run did not end
  /// with a finite loss.
  std::vector<double> losses = {};

  bool finite() const;
};

/// The model is loss(arm, seed) = base(seed) + sum of harm(product, seed) over
/// the arm's products. It is fitted by least squares to each seed on its own.
/// Arms with one product and arms with all but one determine every sum about
/// equally well. A sum of differences to one baseline run would repeat the
/// chance of that run in each term.
class AdditiveModel {
 public:
  /// A product is unstable if an arm that has it alone lacks a finite loss.
  /// The fit leaves out unstable products, every arm with one of them, and
  /// every arm that lacks a finite loss.
  /// Errors   ConfigError for fewer than 2 seeds, arms of different numbers of
  ///          seeds, or arms that do not determine every stable product.
  AdditiveModel(size_t products, std::span<const ArmLosses> arms);

  size_t seeds() const { return seeds_; }
  bool IsUnstable(size_t product) const {
    return column_[product] == kUnstable;
  }
  /// Returns the names of the arms that were left out.
  const std::vector<std::string>& left_out() const { return left_out_; }

  /// Returns the sum of the harms of `products`, nats, by seed.
  /// Special  infinite if one of them is unstable.
  std::vector<double> HarmBySeed(std::span<const size_t> products) const;

  /// Returns the standard error of the mean of HarmBySeed, from the residuals
  /// of all arms and seeds. Chance moves every run about alike, and all
  /// residuals together determine its size far better than the spread of a few
  /// seeds does.
  /// Special  0 if there are no residuals (freedom() is 0).
  double ErrorOf(std::span<const size_t> products) const;
  /// Returns the degrees of freedom of ErrorOf.
  double freedom() const { return freedom_; }

 private:
  void Fit(std::span<const ArmLosses* const> arms);

  static constexpr size_t kUnstable = static_cast<size_t>(-1);

  size_t seeds_ = 0;
  std::vector<size_t> column_;  ///< of each product
  size_t columns_ = 0;
  std::vector<double> harms_;       ///< [column, seed]
  std::vector<double> covariance_;  ///< [column, column], of one run's variance
  double run_variance_ = 0;
  double freedom_ = 0;
  std::vector<std::string> left_out_;
};

}  // namespace isoloss::estimators
