"""Does averaging the weights help where many next tokens are legal, and at which schedule?"""
