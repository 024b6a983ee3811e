// The harm of each quantised product to the loss, if harms add up.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// An arm that quantises some products: fprop, dgrad or wgrad of a kind of
/// site.
struct ArmLosses {
  std::string name;
  std::vector<size_t> products = {};
  /// Held-out loss, nats, one for each seed; NaN where a run did not end with a
  /// finite one.
  std::vector<double> losses = {};

  bool finite() const;
};

/// loss(arm, seed) = base(seed) + sum of harm(product, seed) over its products,
/// fitted by least squares to each seed on its own. Arms with one product and
/// arms with all but one determine every sum about equally well, where a sum of
/// differences to one baseline run would repeat that run's chance in each term.
class AdditiveModel {
 public:
  /// A product is unstable if an arm that has it alone lacks a finite loss;
  /// such products and all arms with one of them are left out, as are other
  /// arms that lack one. Errors   ConfigError for fewer than 2 seeds, arms of
  /// different numbers of
  ///          seeds, or arms that do not determine every stable product.
  AdditiveModel(size_t products, std::span<const ArmLosses> arms);

  size_t seeds() const { return seeds_; }
  bool IsUnstable(size_t product) const {
    return column_[product] == kUnstable;
  }
  /// Names of arms that were left out.
  const std::vector<std::string>& left_out() const { return left_out_; }

  /// Sum of the harms of `products`, nats, by seed.
  /// Special  infinite if one of them is unstable.
  std::vector<double> HarmBySeed(std::span<const size_t> products) const;

  /// Standard error of the mean of HarmBySeed, by what the fit leaves over in
  /// all arms and seeds: chance moves every run about alike, and that is known
  /// far better than the spread of a few seeds.
  /// Special  0 if the fit leaves nothing over to know it by (freedom() 0).
  double ErrorOf(std::span<const size_t> products) const;
  /// Degrees of freedom of ErrorOf.
  double freedom() const { return freedom_; }

 private:
  /// Solves for the harms of stable products.
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
