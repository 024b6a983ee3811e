#include "isoloss/expert_parallel/ranked_exchange.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {

using transport::OpKind;

RankedExchange::RankedExchange(const ExchangeSetup& setup, int layer,
                               Conservation& conservation)
    : setup_(setup),
      layer_(layer),
      conservation_(conservation),
      local_(setup.transport.local_ranks()),
      payload_(PayloadByName(setup.options.payload, setup.rounding)),
      gradient_payload_(
          PayloadByName(setup.options.gradient_payload, setup.rounding)),
      reply_payload_(PayloadByName("unquantized", setup.rounding)),
      layout_(setup.topology, setup.dispatch_units, setup.options.padding,
              local_),
      states_(static_cast<size_t>(local_.size())) {}

FoldOrder RankedExchange::fold_order() const {
  switch (setup_.options.algorithm) {
    case Algorithm::kFlat:
      return FoldOrder::kSlot;
    case Algorithm::kTitanBf16:
      return FoldOrder::kExpert;
    case Algorithm::kRank:
    case Algorithm::kNode:
      break;
  }
  return setup_.options.order == CombineOrder::kRank ? FoldOrder::kRank
                                                     : FoldOrder::kLastSlot;
}

size_t RankedExchange::FirstToken(int rank) const {
  return setup_.topology.TokenBegin(static_cast<size_t>(rank),
                                    layout_.tokens()) -
         first_token_;
}

size_t RankedExchange::TokenCount(int rank) const {
  return FirstToken(rank + 1) - FirstToken(rank);
}

RankedExchange::Extent RankedExchange::ExtentOf(size_t hop, size_t from,
                                                size_t to) const {
  const Topology& mesh = setup_.topology;
  if (mesh.replicas > 1 && mesh.GroupOf(from) != mesh.GroupOf(to)) return {};
  if (setup_.options.algorithm == Algorithm::kRank) {
    return {layout_.RankRows(from, to), layout_.Assignments(from, to)};
  }
  if (setup_.options.algorithm != Algorithm::kNode) {
    const size_t rows = layout_.Assignments(from, to);
    return {rows, rows};
  }
  if (hop == 0) {
    const size_t node = mesh.NodeOf(to);
    if (mesh.GatewayOf(from, node) != to) return {};
    return {layout_.NodeRows(from, node), layout_.NodeAssignments(from, node)};
  }
  if (mesh.NodeOf(from) != mesh.NodeOf(to)) return {};
  // A gateway forwards what came from its place on every node of the group.
  Extent sum;
  const size_t first = mesh.GroupOf(from) * mesh.group_ranks();
  for (size_t source = first + from % mesh.node_ranks();
       source < first + mesh.group_ranks(); source += mesh.node_ranks()) {
    sum.rows += layout_.RankRows(source, to);
    sum.tags += layout_.Assignments(source, to);
  }
  return sum;
}

void RankedExchange::GatherCounts(MatrixView<const int32_t> expert_ids) {
  const Topology& mesh = setup_.topology;
  // Every process has an equal share of the batch.
  const size_t tokens =
      expert_ids.rows() * static_cast<size_t>(setup_.transport.processes());
  first_token_ = mesh.TokenBegin(static_cast<size_t>(local_.first), tokens);
  ISOLOSS_ASSERT(mesh.TokenBegin(static_cast<size_t>(local_.end), tokens) -
                     first_token_ ==
                 expert_ids.rows());
  const auto count = [&](int rank, std::span<std::byte> mine) {
    const auto r = static_cast<size_t>(rank);
    const size_t begin = mesh.TokenBegin(r, tokens);
    const size_t end = mesh.TokenBegin(r + 1, tokens);
    layout_.Count(r, tokens, expert_ids.Rows(begin - first_token_, end - begin),
                  mine);
  };
  const std::span<const std::byte> counts = setup_.transport.AllGather(
      Op(OpKind::kCounts, 0), layout_.contribution_bytes(), count);
  try {
    layout_.Build(counts, tokens, expert_ids.cols());
  } catch (const Error& error) {
    ThrowError(error.kind(), "step {}, {}: {}", setup_.transport.step(),
               transport::Describe(Op(OpKind::kCounts, 0)), error.what());
  }
  counts_ = layout_.counts();
  counts_.dispatch_rows =
      setup_.options.algorithm == Algorithm::kRank   ? counts_.rank_rows
      : setup_.options.algorithm == Algorithm::kNode ? counts_.node_rows
                                                     : counts_.assignments;
}

/// Gives the experts' lists their extent; padding is zero.
void RankedExchange::ClearLists(size_t width) {
  width_ = width;
  expert_in_.ResizeUninitialized(layout_.rows(), width);
  row_weights_.resize(layout_.rows());
  row_weight_gradients_.resize(layout_.rows());
  for (const Layout::Run& run : layout_.padding()) {
    std::fill(expert_in_.Row(run.first), expert_in_.Row(run.end), 0.0f);
    std::fill(row_weights_.begin() + static_cast<std::ptrdiff_t>(run.first),
              row_weights_.begin() + static_cast<std::ptrdiff_t>(run.end),
              0.0f);
  }
}

void RankedExchange::Dispatch(MatrixView<const float> source,
                              MatrixView<const int32_t> expert_ids,
                              MatrixView<const float> weights) {
  expert_ids_ = expert_ids;
  weights_ = weights;
  slots_ = expert_ids.cols();
  local_tokens_ = source.rows();
  GatherCounts(expert_ids);
  ClearLists(source.cols());
  SendRows(OpKind::kDispatch, source, &RankedExchange::ReceiveTokens);
}

void RankedExchange::Combine(MatrixView<const float> expert_out,
                             MatrixView<float> out) {
  ISOLOSS_ASSERT(expert_out.rows() == layout_.rows() &&
                 out.rows() == local_tokens_);
  ReturnRows(OpKind::kCombine, expert_out, out);
}

void RankedExchange::CombineBackward(MatrixView<const float> dout,
                                     MatrixView<float> expert_out) {
  expert_out_ = expert_out;
  for (const Layout::Run& run : layout_.padding()) {
    std::fill(expert_out.Row(run.first), expert_out.Row(run.end), 0.0f);
  }
  SendRows(OpKind::kDispatchGradient, dout,
           &RankedExchange::ReceiveOutputGradients);
}

MatrixView<const float> RankedExchange::ReturnGradients(
    MatrixView<const float> dexpert_in) {
  returned_.ResizeUninitialized(local_tokens_, width_);
  dweights_.ResizeUninitialized(local_tokens_, slots_);
  ReturnRows(OpKind::kCombineGradient, dexpert_in, returned_.view());
  return dweights_.view();
}

void RankedExchange::DispatchBackward(MatrixView<const float> addend,
                                      MatrixView<float> dsource) {
  kernels::Add(returned_.view(), addend, setup_.rounding, dsource, setup_.team);
}

void RankedExchange::AddPredictedBytes(OpKind op,
                                       MatrixView<int64_t> bytes) const {
  const bool to_experts =
      op == OpKind::kDispatch || op == OpKind::kDispatchGradient;
  const size_t row_bytes = to_experts ? PayloadOf(op).row_bytes(width_)
                                      : reply_payload_.row_bytes(width_);
  const size_t tag_bytes = op == OpKind::kDispatch          ? sizeof(Assignment)
                           : op == OpKind::kCombineGradient ? sizeof(float)
                                                            : 0;
  for (size_t hop = 0; hop < hops(); ++hop) {
    for (size_t from = 0; from < bytes.rows(); ++from) {
      for (size_t to = 0; to < bytes.cols(); ++to) {
        const Extent extent = ExtentOf(hop, from, to);
        const auto sum = static_cast<int64_t>(extent.rows * row_bytes +
                                              extent.tags * tag_bytes);
        (to_experts ? bytes(from, to) : bytes(to, from)) += sum;
      }
    }
  }
}

}  // namespace isoloss::expert_parallel
