// Finds one threshold for many dependent statistics by the distribution of the
// largest standardised deviation, after Westfall and Young.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "isoloss/stats/normality.h"

namespace isoloss::stats {

struct MaxTOptions {
  /// This share of null runs shall stay below the threshold ...
  double coverage = 0.99;
  /// ... with this confidence; both are in (0, 1).
  double confidence = 0.95;
};

struct MaxTResult {
  /// (observed - location) / scale of each statistic is infinite for an
  /// observed value that is not finite.
  std::vector<double> z;
  double largest = 0;  ///< max |z|
  size_t worst = 0;    ///< the first statistic with the largest |z|
  /// Statistics with |z| above the threshold, in ascending order; the run fails
  /// if there is one.
  std::vector<size_t> exceeding;
  /// The order-statistic p-value of the run has an exact level (see MaxT).
  double p_value = 1;
  /// Each statistic on its own has a two-sided p-value by Student's t with runs
  /// - 1 degrees of freedom, for false_discovery.h and the report. It assumes
  /// that the statistic is normal.
  std::vector<double> p_values;
};

/// Judges a run by all its statistics at once against runs of a null ensemble.
///
/// Location and scale of a statistic are mean and sd over the null runs. Each
/// null run is standardised by the rest of them, and its max |z| is taken. So
/// the dependence between statistics is kept and needs no model. These maxima
/// give two answers:
///
/// threshold  exp(m + k s) for mean m and sd s of log max |z| over the runs and
///            k = ToleranceFactor(runs, coverage, confidence). It reaches
///            beyond the largest null run, and rests on log max |z| being near
///            normal: see normality(). A run left out is standardised by one
///            run fewer than an observed one, which makes it slightly larger:
///            the threshold errs upward by about 1 / runs. Never below 1: a
///            deviation within one scale of its location is not remarkable.
/// p-value    rank of the observed maximum among those of the null runs. All
///            runs + 1 are treated alike: each is standardised by the rest.
///            If the observed run is exchangeable with the null runs,
///            P(p <= j / (runs + 1)) <= j / (runs + 1) exactly, under any
///            dependence and for any distribution. Never below
///            1 / (runs + 1).
///
/// Source   Westfall, Young: Resampling-Based Multiple Testing (1993),
///          section 2.3.
class MaxT {
 public:
  /// `scale_floor`, one positive number per statistic in its unit, is the
  /// smallest scale used. Deviations of that size are of no concern even if all
  /// null runs agree to the last bit.
  ///
  /// Shapes   null [runs, statistics], row-major; scale_floor [statistics].
  /// Special  A null run without any deviation has maximum 0; it counts as the
  ///          smallest positive maximum, and if none is positive the threshold
  ///          is 1.
  /// Errors   ConfigError for fewer than 3 runs or no statistic; if a null
  ///          value is not finite, a floor not positive and finite, or an
  ///          option out of its range. ShapeError if null is not rectangular.
  MaxT(std::span<const double> null, std::span<const double> scale_floor,
       const MaxTOptions& options);

  /// Judges an observed run.
  /// Cost     O(runs * statistics).
  /// Errors   ShapeError unless observed is [statistics].
  MaxTResult Test(std::span<const double> observed) const;

  double threshold() const { return threshold_; }
  /// Each null run has a max |z|, standardised by the rest of them.
  const std::vector<double>& null_maxima() const { return null_maxima_; }
  /// Returns the test of log max |z|; it is empty for fewer than 8 runs. A
  /// small p-value says that the threshold's coverage is not what the options
  /// say.
  const std::optional<NormalityTest>& normality() const { return normality_; }

 private:
  size_t Statistics() const { return scale_floor_.size(); }
  void SetThreshold(const MaxTOptions& options);
  double PooledPValue(std::span<const double> observed, double largest) const;

  std::vector<double> null_;  ///< [statistics, runs]: columns are contiguous
  size_t runs_;
  std::vector<double> scale_floor_;
  std::vector<double> location_;
  std::vector<double> scale_;
  std::vector<double> null_maxima_;
  double threshold_ = 1;
  std::optional<NormalityTest> normality_;
};

}  // namespace isoloss::stats
