// Compares figures of a log with expected ones, under one name.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "isoloss/oracle/comparison.h"
#include "isoloss/step_checks/report_sink.h"

namespace isoloss::step_checks {

/// Compares one column of a log; its destructor adds the result to the sink.
class FigureComparison {
 public:
  /// The figures stand in this row of what is reported.
  FigureComparison(std::string name, ReportSink& sink, size_t row = 0)
      : name_(std::move(name)), sink_(sink), row_(row) {}
  ~FigureComparison() {
    if (comparison_.tensor_elements() > 0) sink_.Add(name_, comparison_);
  }
  FigureComparison(const FigureComparison&) = delete;
  FigureComparison& operator=(const FigureComparison&) = delete;

  /// Adds figures that `draws` left out.
  void AddUnseen(int64_t figures, int64_t draws) {
    comparison_.AddUnseen(figures, draws);
  }
  void AddCount(int64_t logged, int64_t expected) {
    Add(logged == expected, static_cast<double>(logged),
        static_cast<double>(expected));
  }
  /// Compares digests of 64 bits; 0 is no digest.
  void AddDigest(int64_t logged, uint64_t expected) {
    Add(logged != 0 && static_cast<uint64_t>(logged) == expected,
        static_cast<double>(logged), static_cast<double>(expected));
  }
  /// A sum may be far smaller than its summands; then `scale` is their size.
  void AddReal(double logged, double expected, double scale = 0.0) {
    constexpr double kTolerance = 1e-9;
    const double size = std::fmax(std::fabs(expected), scale);
    const bool same = logged == expected ||
                      (std::isnan(logged) && std::isnan(expected)) ||
                      std::fabs(logged - expected) <= kTolerance * size;
    Add(same, logged, expected);
  }

 private:
  void Add(bool same, double logged, double expected) {
    if (same) {
      comparison_.AddExact(row_, place_++, 0.0f, 0.0f);
    } else {
      comparison_.AddOther(row_, place_++, static_cast<float>(logged),
                           expected);
    }
  }

  const std::string name_;
  ReportSink& sink_;
  const size_t row_;
  oracle::Comparison comparison_{oracle::Grid::kFp32};
  size_t place_ = 0;
};

}  // namespace isoloss::step_checks
