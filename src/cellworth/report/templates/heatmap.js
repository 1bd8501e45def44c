class HeatMap { static async open() { return null; } }
