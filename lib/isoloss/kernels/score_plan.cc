#include "isoloss/kernels/score_plan.h"

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::kernels {
namespace {

constexpr size_t kScoreAlignment = 16;

size_t RoundUp(size_t value, size_t divisor) {
  return (value + divisor - 1) / divisor * divisor;
}

size_t RoomFor(const ScoreBlock& block) {
  return RoundUp(block.rows * block.keys(), kScoreAlignment);
}

size_t TilesOf(size_t count) { return (count + kQueryBlock - 1) / kQueryBlock; }

}  // namespace

size_t ScoreWave::scores() const {
  if (blocks.empty()) return 0;
  const ScoreBlock& last = blocks.back();
  return last.place + last.rows * last.keys();
}

void ScoreWave::RequireScores(const char* where, size_t given) const {
  if (given >= scores()) return;
  ThrowError(ErrorKind::kShape,
             "{}: {} scores are given, but the wave has {}. Pass those of all "
             "its blocks.",
             where, given, scores());
}

void ScorePlan::List(const Batch& batch) {
  if (Lists(batch)) return;
  document_ends_.assign(batch.document_ends.begin(), batch.document_ends.end());
  batch_ = batch;
  batch_.document_ends = {};  // its owner need not keep them
  ListBlocks();
  CutIntoWaves();
  if (there_.memory().is_host()) return;
  there_.ResizeUninitialized(1, blocks_.size());
  if (blocks_.empty()) return;
  there_.memory().CopyFromHost(
      blocks_.data(), blocks_.size() * sizeof(ScoreBlock), there_.data());
}

bool ScorePlan::Lists(const Batch& batch) const {
  return batch.heads == batch_.heads && batch.whole == batch_.whole &&
         batch.most_scores == batch_.most_scores &&
         std::ranges::equal(batch.document_ends, document_ends_);
}

/// Lists blocks by ascending first query, because sums over blocks are added in
/// this order.
void ScorePlan::ListBlocks() {
  size_t longest = 0;
  size_t begin = 0;
  for (const size_t end : document_ends_) {
    longest = std::max(longest, end - std::exchange(begin, end));
  }
  blocks_.clear();
  const size_t step = batch_.whole ? longest : kQueryBlock;
  for (size_t first = 0; first < longest; first += step) {
    begin = 0;
    size_t number = 0;
    for (const size_t end : document_ends_) {
      const size_t length = end - begin;
      for (size_t head = 0; head < batch_.heads; ++head, ++number) {
        if (first >= length) continue;
        ScoreBlock& block = blocks_.emplace_back();
        block.number = number;
        block.head = head;
        block.begin = begin;
        block.length = length;
        block.first = first;
        block.rows = std::min(step, length - first);
      }
      begin = end;
    }
  }
}

void ScorePlan::CutIntoWaves() {
  wave_ends_.clear();
  most_scores_ = 0;
  last_.assign(document_ends_.size() * batch_.heads, nullptr);
  for (size_t begin = 0; begin < blocks_.size();) {
    size_t end = begin;
    size_t scores = 0;
    do {
      scores += RoomFor(blocks_[end++]);
    } while (end < blocks_.size() &&
             scores + RoomFor(blocks_[end]) <= batch_.most_scores);
    FinishWave(std::span(blocks_).subspan(begin, end - begin));
    wave_ends_.push_back(end);
    most_scores_ = std::max(most_scores_, Wave(wave_ends_.size() - 1).scores());
    begin = end;
  }
}

void ScorePlan::FinishWave(std::span<ScoreBlock> wave) {
  size_t place = 0;
  size_t rows = 0;
  size_t score_tiles = 0;
  size_t key_tiles = 0;
  for (ScoreBlock& block : wave) {
    block.place = place;
    place += RoomFor(block);
    ScoreBlock*& before = last_[block.number];
    if (before != nullptr) {
      before->next = static_cast<size_t>(&block - wave.data());
      block.first_of = block.first;
    }
    before = &block;
    rows += block.rows;
    block.rows_end = rows;
    score_tiles += TilesOf(block.rows) * TilesOf(block.keys());
    block.score_tiles_end = score_tiles;
    key_tiles += TilesOf(block.keys()) - block.first_of / kQueryBlock;
    block.key_tiles_end = key_tiles;
  }
  for (const ScoreBlock& block : wave) last_[block.number] = nullptr;
}

ScoreWave ScorePlan::Wave(size_t wave) const {
  const size_t begin = wave == 0 ? 0 : wave_ends_[wave - 1];
  const std::span<const ScoreBlock> blocks(blocks_);
  const ScoreBlock* const there =
      there_.memory().is_host() ? blocks_.data() : there_.data();
  return {blocks.subspan(begin, wave_ends_[wave] - begin), there + begin};
}

}  // namespace isoloss::kernels
