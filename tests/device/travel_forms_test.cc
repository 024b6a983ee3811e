// On a device as on the host, rows that would travel get the values that a
// receiver decodes, and sums have the bits of GatherCombine and Add.
#include "isoloss/device/travel_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "executors.h"
#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"
#include "kernels/gemm_cases.h"

namespace isoloss::device::travel_forms_test {
namespace {

using kernels::RowFormat;
using kernels::SameResults;
using kernels::Values;

constexpr RowFormat kFormats[] = {RowFormat::kMx, RowFormat::kE4m3Fp32,
                                  RowFormat::kE4m3Pow2};

std::vector<NamedExecutor> HostAndDevices() {
  std::vector<NamedExecutor> all = DeviceExecutors();
  all.push_back({"host", std::make_shared<Executor>(2)});
  return all;
}

class TravelFormsTest : public testing::TestWithParam<NamedExecutor> {
 protected:
  Executor& executor() { return *GetParam().executor; }
  Matrix<float> There(const Matrix<float>& host) {
    Matrix<float> copy{executor().memory()};
    copy.CopyFrom(host);
    return copy;
  }
  static Matrix<float> OnHost(const Matrix<float>& there) {
    Matrix<float> copy;
    copy.CopyFrom(there);
    return copy;
  }

  /// Compares the kernel with the functions of the wire.
  void ExpectRoundTrips(const Matrix<float>& rows) {
    const size_t width = rows.cols();
    Matrix<float> expected(rows.rows(), width);
    std::vector<std::byte> bytes(5 * width);
    const Matrix<float> from = There(rows);
    Matrix<float> to{executor().memory()};
    to.ResizeUninitialized(rows.rows(), width);
    for (const RowFormat format : kFormats) {
      for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
        for (size_t t = 0; t < rows.rows(); ++t) {
          if (format == RowFormat::kMx) {
            kernels::EncodeMxRow(rows.Row(t), width, bytes.data());
            kernels::DecodeMxRow(bytes.data(), width, rounding,
                                 expected.Row(t));
          } else {
            kernels::EncodeE4m3Row(rows.Row(t), width,
                                   format == RowFormat::kE4m3Fp32
                                       ? kernels::RunScale::kFp32
                                       : kernels::RunScale::kPow2,
                                   bytes.data());
            kernels::DecodeE4m3Row(bytes.data(), width, rounding,
                                   expected.Row(t));
          }
        }

        kernels::RoundTripRows(from.view(), format, rounding, to.view(),
                               executor());

        ASSERT_TRUE(SameResults(OnHost(to).cview(), expected.cview()))
            << "format " << static_cast<int>(format) << ", width " << width;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Executors, TravelFormsTest,
                         testing::ValuesIn(HostAndDevices()),
                         [](const auto& test) { return test.param.name; });

TEST_P(TravelFormsTest, RoundTripsRowsAsTheWire) {
  for (const Values kind : {Values::kBf16, Values::kFp32, Values::kWild}) {
    for (const size_t width : {1, 31, 32, 33, 127, 128, 129, 300, 1000}) {
      ExpectRoundTrips(kernels::Filled(5, width, kind, width));
    }
  }
  ExpectRoundTrips(Matrix<float>(0, 40));
}

TEST_P(TravelFormsTest, RoundTripsRunsOfEveryLargestMagnitude) {
  // Row r has the largest magnitude of exponent r: around each power of two,
  // and around 1.75 times it, where the scale steps.
  Matrix<float> rows(256, 4 * kernels::kScaledRun);
  for (size_t r = 0; r < rows.rows(); ++r) {
    const int exponent = static_cast<int>(r) - 130;
    for (size_t run = 0; run < rows.cols() / 32; ++run) {
      const float at = std::ldexp(run % 2 == 0 ? 1.0f : 1.75f, exponent);
      const float toward = run % 3 == 0   ? 0.0f
                           : run % 3 == 1 ? at
                                          : std::numeric_limits<float>::max();
      const float largest = std::nextafter(at, toward);
      for (size_t i = 0; i < 32; ++i) {
        rows(r, run * 32 + i) =
            largest * (1.0f - static_cast<float>(i * (run + 1)) / 700.0f);
      }
    }
  }
  ExpectRoundTrips(rows);
}

TEST_P(TravelFormsTest, RoundTripsValuesAroundTies) {
  // Midpoints of E4M3's values and their neighbours, under 96 scales.
  constexpr formats::Format element = formats::kE4m3Format;
  Matrix<float> rows(96, kernels::kScaledRun);
  for (size_t r = 0; r < rows.rows(); ++r) {
    const float largest = 1.0f + static_cast<float>(r) / 97.0f;
    for (size_t i = 0; i < rows.cols(); ++i) {
      const auto code = static_cast<uint32_t>(i % element.max_code);
      const float tie = (formats::ValueOfCode(element, code) +
                         formats::ValueOfCode(element, code + 1)) /
                        2;
      const float value = tie * (largest / 448.0f);
      const float toward = r % 3 == 0 ? 0.0f : r % 3 == 1 ? value : 2.0f;
      rows(r, i) = i % 32 == 0 ? -largest : std::nextafter(value, toward);
    }
  }
  ExpectRoundTrips(rows);
}

TEST_P(TravelFormsTest, RoundTripsInPlace) {
  const Matrix<float> rows = kernels::Filled(3, 200, Values::kWild, 1);
  Matrix<float> apart{executor().memory()};
  apart.ResizeUninitialized(3, 200);
  Matrix<float> in_place = There(rows);
  kernels::RoundTripRows(in_place.view(), RowFormat::kMx, Rounding::kBf16,
                         apart.view(), executor());

  kernels::RoundTripRows(in_place.view(), RowFormat::kMx, Rounding::kBf16,
                         in_place.view(), executor());

  EXPECT_TRUE(SameResults(OnHost(in_place).cview(), OnHost(apart).cview()));
}

/// Holds 40 sums, each of up to 9 of 20 rows.
struct SumCase {
  SumCase() {
    const CounterRng rng(5, 1);
    for (size_t i = 0; i < 40; ++i) {
      for (size_t n = 0; n < i % 10; ++n) {
        terms.push_back(static_cast<int32_t>(rng.Below(10 * i + n, 20)));
      }
      begins.push_back(static_cast<uint32_t>(terms.size()));
    }
  }

  std::vector<uint32_t> begins = {0};
  std::vector<int32_t> terms;
  Matrix<float> rows = kernels::Filled(20, 70, Values::kWild, 2);
  Matrix<float> weights = kernels::Filled(20, 1, Values::kFp32, 3);
};

TEST_P(TravelFormsTest, SumsRowsAsTheRowwiseOperations) {
  const SumCase c;
  Executor host(1);
  std::vector<int32_t> all(c.rows.rows());
  std::iota(all.begin(), all.end(), 0);
  const Matrix<float> rows = There(c.rows);
  const Matrix<float> weights = There(c.weights);
  Matrix<float> out{executor().memory()};
  out.ResizeUninitialized(c.begins.size() - 1, c.rows.cols());
  for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
    for (const bool weighted : {false, true}) {
      Matrix<float> terms(c.rows.rows(), c.rows.cols());
      if (weighted) {
        kernels::GatherCombine(c.rows.view(), {all.data(), all.size(), 1},
                               c.weights.view(), {}, rounding, terms.view(),
                               host);
      } else {
        terms.CopyFrom(c.rows);
      }
      for (const bool each : {false, true}) {
        Matrix<float> expected(out.rows(), out.cols());
        for (size_t i = 0; i < out.rows(); ++i) {
          const size_t count = c.begins[i + 1] - c.begins[i];
          const int32_t* first = c.terms.data() + c.begins[i];
          const MatrixView<float> sum = expected.view().Rows(i, 1);
          if (!each) {
            kernels::GatherCombine(terms.view(), {first, 1, count}, {}, {},
                                   rounding, sum, host);
            continue;
          }
          for (size_t n = 0; n < count; ++n) {
            kernels::Add(sum,
                         terms.view().Rows(static_cast<size_t>(first[n]), 1),
                         rounding, sum, host);
          }
        }

        kernels::SumRows(
            {rows.view(), weighted ? weights.view() : MatrixView<const float>(),
             c.begins, c.terms},
            {rounding, each}, out.view(), executor());

        EXPECT_TRUE(SameResults(OnHost(out).cview(), expected.cview()))
            << weighted << each;
      }
    }
  }
}

TEST_P(TravelFormsTest, RefuseWhatDoesNotFit) {
  SumCase c;
  Matrix<float> rows = There(c.rows);
  Matrix<float> out{executor().memory()};
  const auto sum = [&](size_t out_rows) {
    out.ResizeUninitialized(out_rows, c.rows.cols());
    kernels::SumRows({rows.view(), {}, c.begins, c.terms}, {Rounding::kFp32},
                     out.view(), executor());
  };
  sum(40);
  EXPECT_THROW(sum(39), Error);
  c.terms[7] = 20;
  EXPECT_THROW(sum(40), Error);
  c.terms.pop_back();
  EXPECT_THROW(sum(40), Error);
  EXPECT_THROW(kernels::RoundTripRows(rows.view(), RowFormat::kMx,
                                      Rounding::kFp32, out.view(), executor()),
               Error);
}

}  // namespace
}  // namespace isoloss::device::travel_forms_test
