#include "isoloss/expert_parallel/indexed_exchange.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {

using kernels::Rounding;
using transport::OpKind;

namespace {

/// Returns all elements as one column, as which a kernel gathers single ones.
template <typename T>
MatrixView<T> AsColumn(MatrixView<T> values) {
  ISOLOSS_ASSERT(values.stride() == values.cols() || values.rows() <= 1);
  return {values.data(), values.rows() * values.cols(), 1};
}

}  // namespace

IndexedExchange::IndexedExchange(const ExchangeSetup& setup, int layer,
                                 transport::Counters& counters)
    : setup_(setup), counters_(counters), book_(setup, layer) {
  ISOLOSS_ASSERT(setup.transport.processes() == 1);
}

void IndexedExchange::Dispatch(MatrixView<const float> source,
                               MatrixView<const int32_t> expert_ids,
                               MatrixView<const float> weights) {
  expert_ids_.emplace(expert_ids, memory());
  weights_ = weights;
  width_ = source.cols();
  book_.Count(expert_ids_->view(), /*weights=*/{});
  Route();

  const size_t rows = book_.layout().rows();
  Matrix<float> room{memory()};
  expert_in_.ResizeUninitialized(rows, width_);
  kernels::GatherRows(Arrived(OpKind::kDispatch, source, room), token_of_row_,
                      expert_in_.view(), setup_.executor);
  ClearPadding(expert_in_.view());
  row_weights_.ResizeUninitialized(rows, 1);
  row_weight_gradients_.ResizeUninitialized(rows, 1);
  kernels::GatherRows(AsColumn(weights), slot_of_row_, row_weights_.view(),
                      setup_.executor);
  ClearPadding(row_weights_.view());
  CountMessages(OpKind::kDispatch);
}

/// Finds out where all rows go and how they are added up.
void IndexedExchange::Route() {
  const auto ranks = static_cast<int>(setup_.topology.ranks);
  const size_t rows = book_.layout().rows();
  row_of_slot_.ResizeUninitialized(expert_ids_->view().rows(), book_.slots());
  slot_of_row_.assign(rows, 0);
  token_of_row_.assign(rows, 0);
  setup_.executor.ParallelFor(setup_.topology.ranks, [this](size_t rank) {
    RouteTokens(static_cast<int>(rank));
  });
  for (size_t rank = 0; rank < setup_.topology.ranks; ++rank) {
    book_.layout().CheckPlaced(rank);
  }
  levels_.resize(SharesRows(book_.fold_order()) ? book_.hops() + 1 : 1);
  std::fill(levels_.begin(), levels_.end(), Level());
  for (int rank = 0; rank < ranks; ++rank) AddLevels(rank);
}

/// Follows the rank's tokens through all hops. No rank takes notice of the
/// others: a gateway's rows of one rank have places of their own.
void IndexedExchange::RouteTokens(int rank) {
  book_.BuildTokens(rank);
  TakeOwn(rank, 0);
  if (book_.last_hop() > 0) {
    book_.BuildForwarding(rank);
    TakeOwn(rank, 1);
  }
  Place(rank);
}

/// Takes the assignments that the rank sends in a hop as if it received them
/// itself, so that rows keep their numbers.
void IndexedExchange::TakeOwn(int rank, size_t hop) {
  static thread_local std::vector<Assignment> message;
  auto& [send, receive] = book_.At(rank, hop);
  receive.Clear(setup_.topology.ranks);
  for (size_t to = 0; to < setup_.topology.ranks; ++to) {
    message.clear();
    for (size_t i = 0; i < send.TagCount(to); ++i) {
      message.push_back(book_.SentAssignment(rank, hop, send.TagBegin(to) + i));
    }
    receive.Take(static_cast<size_t>(rank), static_cast<size_t>(rank),
                 send.RowCount(to), std::as_bytes(std::span(message)));
  }
}

/// Finds the places of the rank's assignments in the experts' lists.
void IndexedExchange::Place(int rank) {
  const size_t slots = book_.slots();
  for (const Assignment& tag : book_.At(rank, book_.last_hop()).receive.tags) {
    const size_t row =
        book_.layout().Place(tag.expert, tag.token, static_cast<size_t>(rank));
    const size_t token = tag.token - book_.first_token();
    row_of_slot_(token, tag.slot) = static_cast<int32_t>(row);
    token_of_row_[row] = static_cast<int32_t>(token);
    slot_of_row_[row] = static_cast<int32_t>(token * slots + tag.slot);
  }
}

/// Appends the sums of the rank's rows.
void IndexedExchange::AddLevels(int rank) {
  const ReceiveSide& arrived = book_.At(rank, book_.last_hop()).receive;
  const auto place = [&](size_t tag) {
    const Assignment& at = arrived.tags[tag];
    return row_of_slot_(at.token - book_.first_token(), at.slot);
  };
  if (levels_.size() == 1) {  // one row for each assignment
    const SendSide& send = book_.At(rank, 0).send;
    levels_[0].Append(send.fold_begins(), [&](size_t i) {
      return place(static_cast<size_t>(send.folds()[i]));
    });
    return;
  }
  size_t first = levels_[0].sums();
  levels_[0].Append(arrived.tag_of_row, place);
  for (size_t l = 1; l < levels_.size(); ++l) {
    const SendSide& send = book_.At(rank, book_.hops() - l).send;
    const auto first_below = static_cast<int32_t>(first);
    first = levels_[l].sums();
    levels_[l].Append(send.fold_begins(),
                      [&](size_t i) { return first_below + send.folds()[i]; });
  }
}

/// Counts what the ranks would send each other. Later shares only lengthen a
/// message: no count depends on the number of shares.
void IndexedExchange::CountMessages(OpKind kind) {
  const size_t ranks = setup_.topology.ranks;
  std::vector<bool>& begun = begun_[kind];
  if (setup_.share == nullptr || setup_.share->index == 0) {
    begun.assign(book_.hops() * ranks * ranks, false);
  }
  for (size_t hop = 0; hop < book_.hops(); ++hop) {
    for (size_t from = 0; from < ranks; ++from) {
      for (size_t to = 0; to < ranks; ++to) {
        const transport::MessageSize size =
            book_.MessageOf(kind, hop, from, to, width_);
        if (size.rows == 0) continue;
        counters_.bytes(from, to) += static_cast<int64_t>(size.bytes);
        const size_t message = (hop * ranks + from) * ranks + to;
        if (!begun[message]) ++counters_.messages;
        begun[message] = true;
      }
    }
  }
}

void IndexedExchange::ClearPadding(MatrixView<float> rows) const {
  const MatrixView<float> elements = AsColumn(rows);
  for (const Layout::Run& run : book_.layout().padding()) {
    memory().SetZero(elements.Row(run.first * rows.cols()),
                     (run.end - run.first) * rows.cols() * sizeof(float));
  }
}

/// Returns the rows as an operation's receivers see them; `room` holds them if
/// they are quantised on the way.
MatrixView<const float> IndexedExchange::Arrived(OpKind kind,
                                                 MatrixView<const float> rows,
                                                 Matrix<float>& room) const {
  const std::optional<kernels::RowFormat> format = book_.PayloadOf(kind).format;
  if (!format) return rows;
  room.ResizeUninitialized(rows.rows(), rows.cols());
  kernels::RoundTripRows(rows, *format, setup_.rounding, room.view(),
                         setup_.executor);
  return room.view();
}

/// Sets out[t] = the sum of the rows that come back to token t. Gradients are
/// not rounded yet, because DispatchBackward adds an addend.
void IndexedExchange::AddUp(OpKind kind, MatrixView<const float> expert_rows,
                            MatrixView<float> out) {
  const bool forward = kind == OpKind::kCombine;
  if (forward && setup_.options.weight_site == WeightSite::kSource) {
    kernels::GatherCombine(expert_rows, row_of_slot_.view(), weights_, {},
                           setup_.rounding, out, setup_.executor);
    return;
  }
  const bool each = book_.fold_order() == FoldOrder::kExpert;
  MatrixView<const float> rows = expert_rows;
  MatrixView<const float> weights;
  if (forward && setup_.options.weight_site == WeightSite::kExpertOut) {
    weights = row_weights_.view();
  }
  Matrix<float> below{memory()};
  for (const Level& level : levels_) {
    const bool last = &level == &levels_.back();
    Matrix<float> sums{memory()};
    if (!last) sums.ResizeUninitialized(level.sums(), width_);
    const bool rounds = forward || each || !last;
    kernels::SumRows({rows, weights, level.begins, level.terms},
                     {rounds ? setup_.rounding : Rounding::kFp32, each},
                     last ? out : sums.view(), setup_.executor);
    below = std::move(sums);
    rows = below.view();
    weights = {};
  }
}

void IndexedExchange::Combine(MatrixView<const float> expert_out,
                              MatrixView<float> out) {
  AddUp(OpKind::kCombine, expert_out, out);
  CountMessages(OpKind::kCombine);
}

void IndexedExchange::CombineBackward(MatrixView<const float> dout,
                                      MatrixView<float> expert_out) {
  Matrix<float> room{memory()};
  const MatrixView<const float> gradients =
      Arrived(OpKind::kDispatchGradient, dout, room);
  if (setup_.options.weight_site == WeightSite::kBeforeFc2) {
    kernels::GatherRows(gradients, token_of_row_, expert_out, setup_.executor);
  } else {
    dweights_.ResizeUninitialized(dout.rows(), book_.slots());
    kernels::GatherCombineBackward(expert_out, row_of_slot_.view(), weights_,
                                   gradients, setup_.rounding, expert_out,
                                   dweights_.view(), setup_.executor);
  }
  ClearPadding(expert_out);
  CountMessages(OpKind::kDispatchGradient);
}

MatrixView<const float> IndexedExchange::ReturnGradients(
    MatrixView<const float> dexpert_in) {
  if (setup_.options.weight_site == WeightSite::kBeforeFc2) {
    dweights_.ResizeUninitialized(row_of_slot_.rows(), row_of_slot_.cols());
    kernels::GatherRows(row_weight_gradients_.view(),
                        {row_of_slot_.data(), row_of_slot_.size()},
                        AsColumn(dweights_.view()), setup_.executor);
  }
  returned_.ResizeUninitialized(row_of_slot_.rows(), width_);
  AddUp(OpKind::kCombineGradient, dexpert_in, returned_.view());
  CountMessages(OpKind::kCombineGradient);
  return dweights_.view();
}

void IndexedExchange::DispatchBackward(MatrixView<const float> addend,
                                       MatrixView<float> dsource) {
  kernels::Add(returned_.view(), addend, setup_.rounding, dsource,
               setup_.executor);
}

}  // namespace isoloss::expert_parallel
