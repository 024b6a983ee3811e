#include "isoloss/layouts/loss_scales.h"

#include <algorithm>
#include <cmath>

#include "isoloss/layouts/difference.h"

namespace isoloss::layouts {

double CountLabels(const operations::Operation& loss) {
  const auto ignored = static_cast<int64_t>(loss.Number("ignore_index", -100));
  const auto& labels = loss.FindIntegers("labels")->values;
  return static_cast<double>(std::ranges::count_if(
      labels, [&](int64_t label) { return label != ignored; }));
}

namespace {

/// Returns how many times as many labels the batch has as a piece of `key`; of
/// rows, if no losses are recorded.
double PartsOf(const Batch& batch, const OperationKey& of, const Piece& piece) {
  double all = 0.0;
  double own = 0.0;
  for (const OperationKey& key : batch.order()) {
    if (key.type != "loss") continue;
    for (const Piece& loss : batch.Of(key)) {
      const double labels = CountLabels(*loss.operation);
      all += labels;
      const bool is_own =
          loss.call == piece.call &&
          batch.FileOf(loss).data_rank == batch.FileOf(piece).data_rank;
      if (is_own) own += labels;
    }
    break;
  }
  if (own > 0.0) return all / own;
  const auto rows = [](const Piece& each) {
    return static_cast<double>(each.operation->Find("x")->extent[0]);
  };
  for (const Piece& each : batch.Of(of)) all += rows(each);
  return all / rows(piece);
}

}  // namespace

LossScales::LossScales(const Batch& a, const Batch& b, const TokenRows& rows,
                       const std::vector<OperationKey>& both)
    : a_(a), b_(b) {
  for (size_t i = both.size(); i-- > 0;) {
    const OperationKey& key = both[i];
    if (key.type != "linear") continue;
    const auto pair = rows.Of(key, "grad_output");
    if (!pair || pair->a.values.rows() != rows.tokens()) continue;
    std::map<std::pair<size_t, size_t>, Region> regions;  // by both pieces
    for (size_t t = 0; t < rows.tokens(); ++t) {
      regions[{pair->a.piece_of_row[t], pair->b.piece_of_row[t]}]
          .rows.push_back(t);
    }
    of_row_.assign(rows.tokens(), 1.0);
    for (auto& [pieces, region] : regions) {
      region.columns = pair->a.values.cols();
      const Piece& of_b = b.Of(key)[pieces.second];
      const double scale = Nearest(
          FitFactor(pair->a.view(), pair->b.view(), region).factor,
          PartsOf(a, key, a.Of(key)[pieces.first]), PartsOf(b, key, of_b));
      for (const size_t t : region.rows) of_row_[t] = scale;
      all_.insert(scale);
      of_piece_[{b.FileOf(of_b).data_rank, of_b.call}] = scale;
    }
    return;
  }
}

double LossScales::Nearest(double factor, double parts_of_a,
                           double parts_of_b) const {
  const auto factors = [](const Batch& batch, double own) {
    const auto ranks = static_cast<double>(batch.recording().data_ranks());
    const auto micro = static_cast<double>(batch.micro_batches());
    return std::vector<double>{1.0,           ranks, micro,
                               ranks * micro, own,   own / micro};
  };
  double best = 1.0;
  double least = HUGE_VAL;
  for (const double b : factors(b_, parts_of_b)) {
    for (const double a : factors(a_, parts_of_a)) {
      const double ratio = factor * a / b;
      const double off = std::max(ratio, 1.0 / ratio);
      if (!(off >= 1.0 && off < least)) continue;
      least = off;
      best = b / a;
    }
  }
  return best;
}

double LossScales::Of(const Piece& piece, size_t calls) const {
  const size_t call =
      piece.call / std::max<size_t>(1, calls / b_.micro_batches());
  const auto found = of_piece_.find({b_.FileOf(piece).data_rank, call});
  return found == of_piece_.end() ? common() : found->second;
}

void LossScales::Remove(const OperationKey& key, Pair& pair) const {
  const bool by_token =
      key.type != "grouped_linear" && pair.b.values.rows() == of_row_.size();
  for (size_t i = 0; i < pair.b.values.rows(); ++i) {
    const double scale = by_token ? of_row_[i] : OfRow(pair, i);
    if (scale == 1.0) continue;
    float* row = pair.b.values.Row(i);
    for (size_t j = 0; j < pair.b.values.cols(); ++j) {
      row[j] = static_cast<float>(static_cast<double>(row[j]) / scale);
    }
  }
}

/// Rows of experts do not say whose tokens they are, so the nearest factor is
/// taken.
double LossScales::OfRow(const Pair& pair, size_t row) const {
  if (is_one()) return common();
  const Region region = {.rows = {row}, .columns = pair.a.values.cols()};
  const double factor = FitFactor(pair.a.view(), pair.b.view(), region).factor;
  return *std::ranges::min_element(all_, {}, [&](double scale) {
    const double ratio = std::fabs(factor) / scale;
    return std::max(ratio, 1.0 / ratio);
  });
}

}  // namespace isoloss::layouts
