// Loaded before a program starts, it rounds as a careless library might have
// left it. Threads inherit that.
#include <fenv.h>

__attribute__((constructor)) static void RoundUpwards(void) {
  fesetround(FE_UPWARD);
}
