/* The instructions of AMX in plain loops, for CPUs that have none. The shapes are those of the kernel
   that runs: every task of it sets the same ones. */

#include <stdint.h>
#include <string.h>

#define TILES 8
#define ROWS 16
#define BYTES 64

static __thread unsigned char tiles[TILES][ROWS][BYTES];
static int tile_rows[TILES], tile_bytes[TILES];

int emulated_configure(int rows, int bytes, int groups) {
  for (int tile = 0; tile < TILES; ++tile) {
    tile_rows[tile] = tile < 6 ? rows : groups;
    tile_bytes[tile] = tile == 4 || tile == 5 ? bytes : BYTES;
  }
  return 0;
}

int emulated_tilerelease(void) { return 0; }

int emulated_tilezero(int8_t tile) {
  memset(tiles[tile], 0, sizeof tiles[tile]);
  return 0;
}

int emulated_tileloadd64(int8_t tile, const char *place, int64_t apart) {
  for (int row = 0; row < tile_rows[tile]; ++row)
    memcpy(tiles[tile][row], place + row * apart, tile_bytes[tile]);
  return 0;
}

int emulated_tilestored64(int8_t tile, char *place, int64_t apart) {
  for (int row = 0; row < tile_rows[tile]; ++row)
    memcpy(place + row * apart, tiles[tile][row], tile_bytes[tile]);
  return 0;
}

static float of_bfloat16(const unsigned char *place) {
  uint32_t bits = 0;
  float number;
  memcpy((char *)&bits + 2, place, 2);
  memcpy(&number, &bits, 4);
  return number;
}

int emulated_tdpbusd(int8_t sums, int8_t data, int8_t weights) {
  for (int row = 0; row < tile_rows[sums]; ++row)
    for (int lane = 0; lane < BYTES / 4; ++lane) {
      int32_t sum;
      memcpy(&sum, &tiles[sums][row][4 * lane], 4);
      for (int k = 0; k < tile_bytes[data]; ++k)
        sum += tiles[data][row][k] * (int8_t)tiles[weights][k / 4][4 * lane + k % 4];
      memcpy(&tiles[sums][row][4 * lane], &sum, 4);
    }
  return 0;
}

int emulated_tdpbf16ps(int8_t sums, int8_t data, int8_t weights) {
  for (int row = 0; row < tile_rows[sums]; ++row)
    for (int lane = 0; lane < BYTES / 4; ++lane) {
      float sum;
      memcpy(&sum, &tiles[sums][row][4 * lane], 4);
      for (int k = 0; k < tile_bytes[data]; k += 2)
        sum += of_bfloat16(&tiles[data][row][k]) *
               of_bfloat16(&tiles[weights][k / 4][4 * lane + k % 4]);
      memcpy(&tiles[sums][row][4 * lane], &sum, 4);
    }
  return 0;
}
