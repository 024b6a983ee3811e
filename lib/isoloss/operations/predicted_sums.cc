#include "isoloss/operations/predicted_sums.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "isoloss/kernels/fused_gemm.h"
#include "isoloss/kernels/piece_sum.h"
#include "isoloss/oracle/tensor_core.h"

namespace isoloss::operations {
namespace {

bool HasScalesOfPieces(const Side& side) {
  return side.quantization && side.quantization->scales_sums() &&
         side.quantization->cell.cols != 0 &&
         side.quantization->cell.cols < side.depth();
}

bool HasFp32Scales(const Side& side) {
  return side.quantization && (side.quantization->scales_sums() ||
                               side.quantization->scales_tensor());
}

kernels::PreparedOperand Prepared(const Side& side,
                                  const oracle::ScalarPieces& pieces,
                                  const kernels::Accumulator& accumulator) {
  oracle::PreparedSide prepared = oracle::PrepareSide(
      OperandOf(side), pieces, &oracle::TensorCoreByName(accumulator.name));
  kernels::PreparedOperand result;
  result.values = std::move(prepared.values);
  result.factors = std::move(prepared.factors);
  if (accumulator.exponents != kernels::FactorExponents::kOfValues) {
    result.exponents = std::move(prepared.exponents);
  }
  return result;
}

float FactorOf(const kernels::PreparedOperand& side, size_t row, size_t piece) {
  return side.factors.size() == 0 ? 1.0f : side.factors(row, piece);
}

}  // namespace

bool PredictedSums::ScalesRows(const ProductGroup& group) {
  return (HasFp32Scales(group.left) || HasFp32Scales(group.right)) &&
         !HasScalesOfPieces(group.left) && !HasScalesOfPieces(group.right);
}

bool PredictedSums::ScalesPieces(const ProductGroup& group) {
  return HasFp32Scales(group.left) && HasFp32Scales(group.right) &&
         !ScalesRows(group);
}

PredictedSums::PredictedSums(const ProductGroup& group,
                             const Arithmetic& arithmetic)
    : arithmetic_(arithmetic) {
  const auto of = [](const Side& side) {
    return side.quantization ? &*side.quantization : nullptr;
  };
  // Scales of rows are those of the first piece, whatever the promotion.
  const bool scales_pieces = arithmetic.scales_pieces();
  pieces_ =
      oracle::PiecesOf(of(group.left), of(group.right),
                       scales_pieces ? arithmetic.accumulation.interval : 0, {},
                       group.left.depth());
  const kernels::Accumulator& accumulator =
      *arithmetic.accumulation.accumulator;
  a_ = Prepared(group.left, pieces_, accumulator);
  b_ = Prepared(group.right, pieces_, accumulator);
  ListChains();
}

bool PredictedSums::Use(const Arithmetic& arithmetic) {
  if (arithmetic == arithmetic_) return true;
  const bool has_same_pieces = !is_scaled() || (!arithmetic_.scales_pieces() &&
                                                !arithmetic.scales_pieces());
  if (!has_same_pieces || arithmetic.accumulation.exponents() !=
                              arithmetic_.accumulation.exponents()) {
    return false;
  }
  arithmetic_ = arithmetic;
  ListChains();
  return true;
}

void PredictedSums::ListChains() {
  chains_.clear();
  if (is_scaled() && arithmetic_.scales_pieces()) {
    for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
      chains_.push_back(
          {pieces_.pieces[p].begin, pieces_.pieces[p].end, p, p == 0});
    }
    return;
  }
  size_t begin = 0;
  for (const size_t end : arithmetic_.split.Ends(depth())) {
    bool begins_part = true;
    do {
      const size_t interval = arithmetic_.accumulation.interval;
      const size_t next = interval == 0 ? end : std::min(begin + interval, end);
      chains_.push_back({begin, next, 0, begins_part});
      begins_part = false;
      begin = next;
    } while (begin < end);
  }
}

std::vector<float> PredictedSums::Parts(size_t row, size_t col,
                                        std::span<const float> chains) const {
  const ResultScale scale = arithmetic_.scale;
  const bool is_left_first =
      scale == ResultScale::kPieceLeft || scale == ResultScale::kPieceLeftApart;
  const bool is_apart = scale == ResultScale::kPieceApart ||
                        scale == ResultScale::kPieceLeftApart;
  const bool scales = is_scaled() && arithmetic_.scales_pieces();
  const kernels::PieceSum adder = {scales && !is_apart,
                                   arithmetic_.accumulation.outer};
  std::vector<float> parts;
  for (size_t i = 0; i < chains_.size(); ++i) {
    const Chain& chain = chains_[i];
    const float left = FactorOf(a_, row, chain.piece);
    const float right = FactorOf(b_, col, chain.piece);
    float piece = is_left_first ? chains[i] * left : chains[i];
    const float factor = is_left_first ? right : left * right;
    if (scales && is_apart) piece *= factor;
    if (chain.begins_part) parts.push_back(0.0f);
    parts.back() = adder.Add(chain.begins_part, parts.back(), piece, factor);
  }
  return parts;
}

float PredictedSums::Finished(size_t row, size_t col,
                              std::vector<float> parts) const {
  const float sum = arithmetic_.split.Sum(std::move(parts));
  if (arithmetic_.scales_pieces()) return sum;
  const float left = FactorOf(a_, row, 0);
  const float right = FactorOf(b_, col, 0);
  switch (arithmetic_.scale) {
    case ResultScale::kLeft:
      return sum * left * right;
    case ResultScale::kRight:
      return sum * right * left;
    default:
      break;
  }
  return sum * (left * right);
}

std::vector<float> PredictedSums::PartsAt(size_t row, size_t col) const {
  const kernels::Accumulator& accumulator =
      *arithmetic_.accumulation.accumulator;
  std::vector<float> sums;
  for (const Chain& chain : chains_) {
    sums.push_back(
        kernels::FusedProduct{a_, row, b_, chain.begin, chain.end, accumulator}
            .Sum(0, col));
  }
  return Parts(row, col, sums);
}

size_t PredictedSums::StripRows() const {
  constexpr size_t kMostSums = size_t{1} << 20;
  constexpr size_t kMostRows = 64;
  const size_t of_row = std::max<size_t>(1, cols() * chains_.size());
  return std::clamp<size_t>(kMostSums / of_row, 1, kMostRows);
}

void PredictedSums::PackPanels() {
  if (b_.panel_values.size() > 0 ||
      !kernels::HasFusedPanels(arithmetic_.accumulation.accumulator)) {
    return;
  }
  kernels::ResizeFusedPanels(b_);
  for (size_t panel = 0; panel < b_.panel_values.rows(); ++panel) {
    kernels::PackFusedPanel(panel, b_);
  }
}

void PredictedSums::Rows(size_t first, Matrix<float>& sums) {
  PackPanels();
  std::vector<Matrix<float>> parts(chains_.size());
  for (size_t i = 0; i < chains_.size(); ++i) {
    parts[i].ResizeUninitialized(sums.rows(), sums.cols());
    kernels::FusedSums({a_, first, b_, chains_[i].begin, chains_[i].end,
                        *arithmetic_.accumulation.accumulator},
                       parts[i]);
  }
  if (chains_.size() == 1 && !is_scaled()) {
    std::swap(sums, parts[0]);
    return;
  }
  std::vector<float> chains(chains_.size());
  for (size_t i = 0; i < sums.rows(); ++i) {
    for (size_t j = 0; j < sums.cols(); ++j) {
      for (size_t c = 0; c < chains.size(); ++c) chains[c] = parts[c](i, j);
      sums(i, j) = Finished(first + i, j, Parts(first + i, j, chains));
    }
  }
}

double PredictedSums::Exact(size_t row, size_t col) const {
  double total = 0.0;
  for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
    double sum = 0.0;
    for (size_t k = pieces_.pieces[p].begin; k < pieces_.pieces[p].end; ++k) {
      sum += static_cast<double>(a_.values(row, k)) *
             static_cast<double>(b_.values(col, k));
    }
    total += sum * static_cast<double>(FactorOf(a_, row, p)) *
             static_cast<double>(FactorOf(b_, col, p));
  }
  return total;
}

float PredictedSums::ExactAt(size_t row, size_t col) const {
  std::vector<float> sums;
  for (const Chain& chain : chains_) {
    double sum = 0.0;
    for (size_t k = chain.begin; k < chain.end; ++k) {
      sum += static_cast<double>(a_.values(row, k)) *
             static_cast<double>(b_.values(col, k));
    }
    sums.push_back(static_cast<float>(sum));
  }
  return Finished(row, col, Parts(row, col, sums));
}

float PredictedSums::ChainAt(size_t row, size_t col) const {
  std::vector<float> sums;
  for (const Chain& chain : chains_) {
    float sum = 0.0f;
    for (size_t k = chain.begin; k < chain.end; ++k) {
      sum = std::fma(a_.values(row, k), b_.values(col, k), sum);
    }
    sums.push_back(sum);
  }
  return Finished(row, col, Parts(row, col, sums));
}

double PredictedSums::LargestError(size_t row, size_t col) const {
  double size = 0.0;
  for (size_t p = 0; p < pieces_.pieces.size(); ++p) {
    const double factor = static_cast<double>(FactorOf(a_, row, p)) *
                          static_cast<double>(FactorOf(b_, col, p));
    for (size_t k = pieces_.pieces[p].begin; k < pieces_.pieces[p].end; ++k) {
      size += std::fabs(static_cast<double>(a_.values(row, k)) *
                        static_cast<double>(b_.values(col, k)) * factor);
    }
  }
  constexpr size_t kRoundingsOfScales = 4;
  return oracle::Gamma(depth() + kRoundingsOfScales) * size;
}

}  // namespace isoloss::operations
