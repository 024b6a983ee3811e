// How long a program's products take, without a line in the product's code.
#pragma once

namespace isoloss::bench {

/// Seconds that the calling thread has spent in kernels::Gemm, GemmBatch and
/// PackedOperand::Pack, on the wall. Programs that ask are linked with
/// `gemm_clock`, by which the linker leads those calls through this clock.
double SecondsInGemms();

}  // namespace isoloss::bench
