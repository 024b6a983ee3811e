#include "isoloss/stats/group_sequential.h"

#include <algorithm>
#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::stats {
namespace {

using std::numbers::pi;

/// The number of ranges of angles. The middle of a range stands for it, which
/// is an error of second order: levels of 800 ranges differ from those of 400
/// by 1e-4 at most.
constexpr size_t kRanges = 400;
/// Smaller errors do not matter and cannot be computed with.
constexpr double kLeastError = 1e-12;
/// No sample has a mean beyond this many standard deviations.
constexpr double kTail = 8;

void Require(bool holds, const char* what, double value, const char* rule) {
  if (holds) return;
  ThrowError(ErrorKind::kConfig, "levels of looks: {} is {}, but {}.", what,
             value, rule);
}

/// Returns the angle of the t statistic that `tail` of all samples exceed.
double AngleOfTail(double tail, double count) {
  const double t = -StudentTQuantile(tail, count - 1);
  return std::atan2(std::sqrt(count - 1), t);
}

/// Returns the probability of a smaller angle.
double AngleBelow(double angle, double count) {
  if (angle <= 0) return 0;
  if (angle >= pi) return 1;
  return StudentTUpperTail(
      std::sqrt(count - 1) * std::cos(angle) / std::sin(angle), count - 1);
}

/// Returns edges from `limit` to an angle that no sample exceeds.
std::vector<double> EdgesFrom(double limit, double count) {
  const double last = std::acos(-std::min(1.0, kTail / std::sqrt(count)));
  const double end = std::max(last, limit);
  std::vector<double> edges;
  for (size_t i = 0; i <= kRanges; ++i) {
    edges.push_back(limit + (end - limit) * static_cast<double>(i) / kRanges);
  }
  return edges;
}

double UpperNormalQuantile(double tail) {
  return std::numbers::sqrt2 * boost::math::erfc_inv(2 * tail);
}

/// Tabulates a function on [low, high]; its ends hold beyond them.
class Table {
 public:
  template <typename Function>
  Table(double low, double high, const Function& function)
      : low_(low), scale_(kSteps / (high - low)) {
    for (size_t i = 0; i <= kSteps; ++i) {
      values_.push_back(function(low + static_cast<double>(i) / scale_));
    }
  }

  double At(double x) const {
    const double place = std::max(0.0, (x - low_) * scale_);
    if (place >= kSteps) return values_.back();
    const auto i = static_cast<size_t>(place);
    return values_[i] +
           (place - static_cast<double>(i)) * (values_[i + 1] - values_[i]);
  }

 private:
  static constexpr size_t kSteps = 4096;
  double low_;
  double scale_;
  std::vector<double> values_;
};

/// Goes from n values to n + 1, whose omega is 0 or pi. The sums over beta are
/// exact.
class OneMore {
 public:
  OneMore(double n, const std::vector<double>& angles,
          const std::vector<double>& masses)
      : scale_(std::sqrt(n + 1)), below_(0, pi / 2, [n](double beta) {
          const double sine = std::sin(beta);
          return boost::math::ibeta(0.5, n / 2, std::min(1.0, sine * sine));
        }) {
    for (size_t i = 0; i < angles.size(); ++i) {
      const double old = std::sqrt(n) * std::cos(angles[i]);
      for (const double added : {1.0, -1.0}) {
        paths_.push_back({.length = std::hypot(old, added),
                          .turn = std::atan2(added, old),
                          .weight = masses[i] / 2});
      }
    }
  }

  /// Returns the probability that the next angle is below `next` and no look
  /// stopped.
  double Below(double next) const {
    const double wanted = scale_ * std::cos(next);
    double sum = 0;
    for (const Path& path : paths_) {
      // old cos(beta) + added sin(beta) = length cos(beta - turn) >= wanted
      const double cosine = std::clamp(wanted / path.length, -1.0, 1.0);
      const double width = std::acos(cosine);
      sum += path.weight * Within(path.turn - width, path.turn + width);
    }
    return sum;
  }

 private:
  struct Path {
    double length = 0;
    double turn = 0;
    double weight = 0;
  };

  /// Returns the probability of a range of angles on the circle, of which beta
  /// has the first quarter.
  double Within(double low, double high) const {
    const double direct = std::max(0.0, below_.At(high) - below_.At(low));
    return direct + 1 - below_.At(low + 2 * pi);
  }

  double scale_;
  Table below_;  // P(beta < x)
  std::vector<Path> paths_;
};

/// Goes from n values to n + m, m > 1. The sums over omega are exact, those
/// over beta use the midpoint rule.
class SeveralMore {
 public:
  SeveralMore(double n, double m, const std::vector<double>& angles,
              const std::vector<double>& masses)
      : scale_(std::sqrt(n + m)),
        first_(std::acos(std::min(1.0, kTail / std::sqrt(m)))),
        below_(first_, pi - first_,
               [m](double omega) { return AngleBelow(omega, m); }) {
    // The standard deviation of beta is half of 1 / sqrt((n + m) / 2 + 1).
    const double middle = std::atan2(std::sqrt(m), std::sqrt(n));
    const double reach = kTail / 2 / std::sqrt((n + m) / 2 + 1);
    const double low = std::max(0.0, middle - reach);
    const double high = std::min(pi / 2, middle + reach);
    double sum = 0;
    for (int k = 0; k < kNodes; ++k) {
      const double beta = low + (high - low) * (k + 0.5) / kNodes;
      const double log_density =
          (n - 1) * std::log(std::cos(beta) / std::cos(middle)) +
          (m - 1) * std::log(std::sin(beta) / std::sin(middle));
      const double density = std::exp(log_density);
      sum += density;
      for (size_t i = 0; i < angles.size(); ++i) {
        paths_.push_back(
            {.old = std::sqrt(n) * std::cos(angles[i]) * std::cos(beta),
             .added = std::sqrt(m) * std::sin(beta),
             .weight = masses[i] * density});
      }
    }
    for (Path& path : paths_) path.weight /= sum;
  }

  /// Returns the probability that the next angle is below `next` and no look
  /// stopped.
  double Below(double next) const {
    const double wanted = scale_ * std::cos(next);
    double sum = 0;
    for (const Path& path : paths_) {
      const double cosine = (wanted - path.old) / path.added;
      if (cosine >= 1) continue;
      sum += path.weight * (cosine <= -1 ? 1 : below_.At(std::acos(cosine)));
    }
    return sum;
  }

 private:
  struct Path {
    double old = 0;
    double added = 0;
    double weight = 0;
  };
  static constexpr int kNodes = 24;

  double scale_;
  double first_;
  Table below_;  // P(omega < x)
  std::vector<Path> paths_;
};

}  // namespace

double SpentAlpha(Spending spending, double alpha, double share) {
  Require(alpha > 0 && alpha < 0.5, "alpha", alpha, "it must lie in (0, 0.5)");
  Require(share > 0, "the share of the largest sample", share,
          "it must be positive");
  if (share >= 1) return alpha;
  if (spending == Spending::kPocock) {
    return alpha * std::log1p((std::numbers::e - 1) * share);
  }
  return std::erfc(UpperNormalQuantile(alpha / 2) / std::sqrt(2 * share));
}

LookLevels::LookLevels(Spending spending, double alpha, int64_t largest)
    : spending_(spending), alpha_(alpha), largest_(largest) {
  Require(largest >= 1, "the largest sample", static_cast<double>(largest),
          "it must be at least 1");
  SpentAlpha(spending, alpha, 1);  // checks alpha
}

double LookLevels::Next(int64_t count) {
  Require(count > count_, "the next look", static_cast<double>(count),
          "samples must grow from look to look, from 1 on");
  const double n = static_cast<double>(count);
  const double allowed =
      SpentAlpha(spending_, alpha_, n / static_cast<double>(largest_));
  const double error = allowed - spent_;
  if (!(error > kLeastError)) return 0;
  if (count == 1) {
    spent_ = allowed;
    return error;
  }
  if (count_ == 0) {
    KeepBeyond(AngleOfTail(error, n), n,
               [n](double angle) { return AngleBelow(angle, n); });
  } else {
    const double before = static_cast<double>(count_);
    if (count == count_ + 1) {
      FindLimit(error, n, OneMore(before, angles_, masses_));
    } else {
      FindLimit(error, n, SeveralMore(before, n - before, angles_, masses_));
    }
  }
  const bool is_first = count_ == 0;
  count_ = count;
  spent_ = allowed;
  return is_first ? error : AngleBelow(limit_, n);
}

/// Finds the limit that is passed with probability `error`.
template <typename Step>
void LookLevels::FindLimit(double error, double count, const Step& step) {
  // If no look had stopped a sample, the limit would be this lowest one.
  double low = AngleOfTail(error, count);
  double high = pi;
  while (high - low > 1e-12) {
    const double middle = low + (high - low) / 2;
    (step.Below(middle) < error ? low : high) = middle;
  }
  KeepBeyond(low, count, [&](double angle) { return step.Below(angle); });
}

/// Keeps the samples beyond the limit. `below` returns the probability of a
/// smaller angle that no look stopped.
template <typename Below>
void LookLevels::KeepBeyond(double limit, double count, const Below& below) {
  limit_ = limit;
  const std::vector<double> edges = EdgesFrom(limit, count);
  std::vector<double> angles;
  std::vector<double> masses;
  double last = below(edges.front());
  for (size_t i = 0; i < kRanges; ++i) {
    const double next = below(edges[i + 1]);
    angles.push_back((edges[i] + edges[i + 1]) / 2);
    masses.push_back(next - last);
    last = next;
  }
  angles_ = std::move(angles);
  masses_ = std::move(masses);
}

}  // namespace isoloss::stats
