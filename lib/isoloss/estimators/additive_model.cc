#include "isoloss/estimators/additive_model.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

void CheckSeeds(std::span<const ArmLosses> arms) {
  const size_t seeds = arms.empty() ? 0 : arms.front().losses.size();
  for (const ArmLosses& arm : arms) {
    if (arm.losses.size() == seeds) continue;
    ThrowError(ErrorKind::kConfig,
               "sites: arm {} has {} seeds, but {} has {}. Train all arms with "
               "the same seeds.",
               arm.name, arm.losses.size(), arms.front().name, seeds);
  }
  if (seeds >= 2) return;
  ThrowError(ErrorKind::kConfig,
             "sites: the arms have {} seeds, but a spread takes at least 2. "
             "Give --seeds 8.",
             seeds);
}

}  // namespace

bool ArmLosses::finite() const {
  return std::ranges::all_of(losses, [](double x) { return std::isfinite(x); });
}

AdditiveModel::AdditiveModel(size_t products, std::span<const ArmLosses> arms)
    : column_(products, 0) {
  CheckSeeds(arms);
  seeds_ = arms.front().losses.size();
  for (const ArmLosses& arm : arms) {
    if (arm.products.size() == 1 && !arm.finite()) {
      column_.at(arm.products.front()) = kUnstable;
    }
  }
  for (size_t& column : column_) {
    if (column != kUnstable) column = columns_++;
  }
  std::vector<const ArmLosses*> used;
  for (const ArmLosses& arm : arms) {
    const bool stable = std::ranges::none_of(
        arm.products, [&](size_t product) { return IsUnstable(product); });
    if (stable && arm.finite()) {
      used.push_back(&arm);
    } else {
      left_out_.push_back(arm.name);
    }
  }
  Fit(used);
}

void AdditiveModel::Fit(std::span<const ArmLosses* const> arms) {
  const auto rows = static_cast<Eigen::Index>(arms.size());
  const auto width = static_cast<Eigen::Index>(columns_) + 1;
  Eigen::MatrixXd design = Eigen::MatrixXd::Zero(rows, width);
  Eigen::MatrixXd losses(rows, static_cast<Eigen::Index>(seeds_));
  for (Eigen::Index row = 0; row < rows; ++row) {
    const ArmLosses& arm = *arms[static_cast<size_t>(row)];
    design(row, 0) = 1;
    for (const size_t product : arm.products) {
      design(row, 1 + static_cast<Eigen::Index>(column_.at(product))) = 1;
    }
    losses.row(row) =
        Eigen::Map<const Eigen::RowVectorXd>(arm.losses.data(), losses.cols());
  }
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> factors(design);
  if (rows < width || factors.rank() < width) {
    ThrowError(ErrorKind::kConfig,
               "sites: {} arms ended with finite losses and leave {} unknowns "
               "undetermined, but each product takes an arm of its own and the "
               "baseline. Look at the runs that did not.",
               arms.size(), width - factors.rank());
  }
  const Eigen::MatrixXd found = factors.solve(losses);
  const Eigen::MatrixXd covariance = (design.transpose() * design).inverse();
  for (Eigen::Index a = 1; a < width; ++a) {
    for (const double harm : found.row(a)) harms_.push_back(harm);
    for (Eigen::Index b = 1; b < width; ++b) {
      covariance_.push_back(covariance(a, b));
    }
  }
  freedom_ = static_cast<double>((rows - width) * losses.cols());
  if (freedom_ > 0) {
    run_variance_ = (losses - design * found).squaredNorm() / freedom_;
  }
}

double AdditiveModel::ErrorOf(std::span<const size_t> products) const {
  double variance = 0;
  for (const size_t a : products) {
    for (const size_t b : products) {
      if (IsUnstable(a) || IsUnstable(b)) continue;
      variance += covariance_[column_.at(a) * columns_ + column_.at(b)];
    }
  }
  return std::sqrt(std::max(0.0, variance) * run_variance_ /
                   static_cast<double>(seeds_));
}

std::vector<double> AdditiveModel::HarmBySeed(
    std::span<const size_t> products) const {
  std::vector<double> sums(seeds_, 0);
  for (const size_t product : products) {
    for (size_t seed = 0; seed < seeds_; ++seed) {
      const double harm = IsUnstable(product)
                              ? std::numeric_limits<double>::infinity()
                              : harms_[column_.at(product) * seeds_ + seed];
      sums[seed] += harm;
    }
  }
  return sums;
}

}  // namespace isoloss::estimators
