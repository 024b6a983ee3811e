#include "isoloss/operations/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "isoloss/kernels/gemm.h"

namespace isoloss::operations {
namespace {

using oracle::Grid;
using Sums = NewtonSchulzWay::Sums;
using Norm = NewtonSchulzWay::Norm;

/// Returns a number of mean 0 and standard deviation 1 that depends on `place`
/// alone: the sum of four uniform ones.
double Draw(uint64_t place) {
  // This is the finalizer of SplitMix64.
  uint64_t bits = place + 0x9E3779B97F4A7C15;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  bits ^= bits >> 31;
  const double sum =
      static_cast<double>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                          (bits >> 32 & 0xFFFF) + (bits >> 48));
  constexpr double kMean = 2.0 * 0xFFFF;
  constexpr double kDeviation = 65536.0 * 0.57735026918962576;  // 4 / 12
  return (sum - kMean) / kDeviation;
}

/// Returns the lengths of rows.
std::vector<double> Lengths(MatrixView<const float> matrix) {
  std::vector<double> lengths(matrix.rows());
  for (size_t r = 0; r < matrix.rows(); ++r) {
    double sum = 0.0;
    for (size_t c = 0; c < matrix.cols(); ++c) {
      const auto value = static_cast<double>(matrix(r, c));
      sum += value * value;
    }
    lengths[r] = std::sqrt(sum);
  }
  return lengths;
}

std::vector<double> ColumnLengths(MatrixView<const float> matrix) {
  std::vector<double> sums(matrix.cols());
  for (size_t r = 0; r < matrix.rows(); ++r) {
    for (size_t c = 0; c < matrix.cols(); ++c) {
      const auto value = static_cast<double>(matrix(r, c));
      sums[c] += value * value;
    }
  }
  for (double& sum : sums) sum = std::sqrt(sum);
  return sums;
}

/// Iterates one matrix that is not taller than wide.
class Iteration {
 public:
  Iteration(const NewtonSchulz& rule, uint64_t draw)
      : rule_(rule), way_(rule.way), draw_(draw) {}

  Matrix<float> Run(MatrixView<const float> matrix) {
    Matrix<float> x = Normalised(matrix);
    const size_t rows = x.rows();
    Matrix<float> gram(rows, rows);
    Matrix<float> factor(rows, rows);
    Matrix<float> sum(rows, rows);
    Matrix<float> next(rows, x.cols());
    const bool is_fused = way_.sums == Sums::kFused;
    for (size_t step = 0; step < rule_.steps.size(); ++step) {
      const auto [a, b, c] = rule_.steps[step];
      Multiply(x.view(), x.view(), kernels::Contraction::kColumns, gram.view());
      Scale(1.0, gram.view(), gram.view());
      // Torch multiplies sums by c; in other ways c is in the left factor.
      Scale(is_fused ? 1.0 : c, gram.view(), factor.view());
      Multiply(factor.view(), gram.view(), kernels::Contraction::kColumns,
               sum.view());
      Add(sum.view(), is_fused ? c : 1.0, gram.view(), b);
      Multiply(sum.view(), x.view(), kernels::Contraction::kRows, next.view());
      const bool is_first = step == 0 && way_.keeps_first;
      Add(next.view(), 1.0, is_first ? first_addend_.view() : x.view(), a);
      std::swap(x, next);
    }
    return x;
  }

 private:
  float Round(double value) const { return RoundTo(way_.grid, value); }
  template <typename Use>
  static void ForEach(MatrixView<float> values, const Use& use) {
    for (size_t r = 0; r < values.rows(); ++r) {
      for (size_t c = 0; c < values.cols(); ++c) use(values(r, c), r, c);
    }
  }
  /// Sets `to` to the rounded numbers of `from` times the factor.
  void Scale(double factor, MatrixView<const float> from,
             MatrixView<float> to) const {
    ForEach(to, [&](float& value, size_t r, size_t c) {
      value = Round(factor * static_cast<double>(from(r, c)));
    });
  }
  /// Returns the error of a sum at that place of a product.
  double Error(double sum, double depth, double lengths, double few,
               size_t place) const {
    if (draw_ == 0) return 0.0;
    double size = 2 * oracle::kUnitRoundoff *
                  (std::sqrt(depth) * std::fabs(sum) + lengths);
    if (way_.grid != Grid::kFp32) {
      const double spacing =
          oracle::Ulp(sum) * (way_.grid == Grid::kBf16 ? 0x1p16 : 0x1p13);
      size = std::max(size, few * spacing);
    }
    return size * Draw((draw_ << 56) ^ (product_ << 48) ^ place);
  }
  /// Returns the least error of a result's sums, in spacings. Of a normal
  /// error, a spacing's part p turns 0.8 p roundings.
  double Few(MatrixView<const float> result) const {
    if (way_.is_unknown) return 0.5;
    const auto count = static_cast<double>(result.rows() * result.cols());
    return std::min(0.25, 4 / (0.8 * count));
  }
  /// Sets result = left right, or left right^T if `right` contracts columns.
  /// The sums are FP32, with an error.
  void Multiply(MatrixView<const float> left, MatrixView<const float> right,
                kernels::Contraction contraction, MatrixView<float> result) {
    kernels::Gemm({.a = {.values = left},
                   .b = {.values = right, .contraction = contraction},
                   .c = result});
    ++product_;
    if (draw_ == 0) return;
    const std::vector<double> rows = Lengths(left);
    const std::vector<double> columns =
        contraction == kernels::Contraction::kColumns ? Lengths(right)
                                                      : ColumnLengths(right);
    const auto depth = static_cast<double>(left.cols());
    const double few = Few(result);
    ForEach(result, [&](float& value, size_t r, size_t c) {
      const auto sum = static_cast<double>(value);
      value = static_cast<float>(sum + Error(sum, depth, rows[r] * columns[c],
                                             few, r * result.cols() + c));
    });
  }
  /// Sets product = scale product + factor addend, rounded as the way says.
  void Add(MatrixView<float> product, double scale,
           MatrixView<const float> addend, double factor) const {
    const bool rounds_product =
        way_.sums == Sums::kProducts || way_.sums == Sums::kEach;
    const bool rounds_addend =
        way_.sums == Sums::kAddends || way_.sums == Sums::kEach;
    ForEach(product, [&](float& value, size_t r, size_t c) {
      double first = scale * static_cast<double>(value);
      double second = factor * static_cast<double>(addend(r, c));
      if (rounds_product) first = static_cast<double>(Round(first));
      if (rounds_addend) second = static_cast<double>(Round(second));
      value = Round(first + second);
    });
  }
  Matrix<float> Normalised(MatrixView<const float> matrix) {
    const bool rounds = way_.norm != Norm::kOfFp32;
    Matrix<float> x(matrix.rows(), matrix.cols());
    double squares = 0.0;
    ForEach(x.view(), [&](float& value, size_t r, size_t c) {
      value = matrix(r, c);
      if (rounds) {
        // Trainers compute the matrix in FP32, with roundings of their own.
        const auto given = static_cast<double>(value);
        value = Round(given + Error(given, 1.0, 0.0, 0.0, r * x.cols() + c));
      }
      squares += static_cast<double>(value) * static_cast<double>(value);
    });
    ++product_;
    const double length = std::sqrt(squares);
    // Squares may be added in one chain.
    const auto terms = static_cast<double>(x.rows() * x.cols());
    double norm = length + Error(length, terms, 0.0, 0.0, 0);
    if (way_.norm == Norm::kRounded) norm = static_cast<double>(Round(norm));
    norm = std::max(norm, rule_.eps);
    ++product_;
    const double few = Few(x.view());
    if (way_.keeps_first) first_addend_.Resize(x.rows(), x.cols());
    ForEach(x.view(), [&](float& value, size_t r, size_t c) {
      const double quotient = static_cast<double>(value) / norm;
      if (way_.keeps_first) first_addend_(r, c) = static_cast<float>(quotient);
      value =
          Round(quotient + Error(quotient, 1.0, 0.0, few, r * x.cols() + c));
    });
    return x;
  }

  const NewtonSchulz& rule_;
  const NewtonSchulzWay way_;
  const uint64_t draw_;
  uint64_t product_ = 0;
  Matrix<float> first_addend_;
};

void IterateOne(const NewtonSchulz& rule, MatrixView<const float> matrix,
                uint64_t draw, MatrixView<float> result) {
  if (matrix.empty()) return;
  const bool is_tall = matrix.rows() > matrix.cols();
  Matrix<float> turned;
  if (is_tall) turned = Transposed(matrix);
  const Matrix<float> found =
      Iteration(rule, draw).Run(is_tall ? turned.view() : matrix);
  for (size_t r = 0; r < result.rows(); ++r) {
    for (size_t c = 0; c < result.cols(); ++c) {
      result(r, c) = is_tall ? found(c, r) : found(r, c);
    }
  }
}

}  // namespace

Matrix<float> Iterated(const NewtonSchulz& rule, MatrixView<const float> matrix,
                       uint64_t draw) {
  Matrix<float> result(matrix.rows(), matrix.cols());
  const size_t all = rule.cuts_columns ? matrix.cols() : matrix.rows();
  for (size_t part = 0; part < rule.parts; ++part) {
    const size_t begin = all * part / rule.parts;
    const size_t count = all * (part + 1) / rule.parts - begin;
    if (rule.cuts_columns) {
      IterateOne(rule, matrix.Cols(begin, count), draw,
                 result.view().Cols(begin, count));
    } else {
      IterateOne(rule, matrix.Rows(begin, count), draw,
                 result.view().Rows(begin, count));
    }
  }
  return result;
}

double Direction::Noise(size_t row, size_t column) const {
  return std::sqrt(rows[row] * columns[column]);
}

Direction DirectionOf(const NewtonSchulz& rule, MatrixView<const float> matrix,
                      MatrixView<const float> probe, size_t draws) {
  Direction result = {.value = Iterated(rule, matrix, 0),
                      .rows = std::vector<double>(matrix.rows()),
                      .columns = std::vector<double>(matrix.cols())};
  double all = 0.0;
  for (uint64_t draw = 1; draw <= draws; ++draw) {
    const Matrix<float> other = Iterated(rule, matrix, draw);
    double along_value = 0.0;
    double along_probe = 0.0;
    for (size_t r = 0; r < matrix.rows(); ++r) {
      for (size_t c = 0; c < matrix.cols(); ++c) {
        const auto value = static_cast<double>(result.value(r, c));
        const double difference = static_cast<double>(other(r, c)) - value;
        const double square = difference * difference;
        result.largest = std::max(result.largest, std::fabs(difference));
        result.rows[r] += square;
        result.columns[c] += square;
        all += square;
        along_value += difference * value;
        along_probe += difference * static_cast<double>(probe(r, c));
      }
    }
    result.along_value += along_value * along_value;
    result.along_probe += along_probe * along_probe;
  }
  if (!(all > 0.0)) return result;
  // The mean square of an element is the product of its row's and its column's
  // mean, divided by the mean of all.
  const auto count = static_cast<double>(draws);
  const auto cols = static_cast<double>(matrix.cols());
  for (double& row : result.rows) row /= count * cols;
  for (double& column : result.columns) column *= cols / all;
  result.along_value = std::sqrt(result.along_value / count);
  result.along_probe = std::sqrt(result.along_probe / count);
  return result;
}

}  // namespace isoloss::operations
